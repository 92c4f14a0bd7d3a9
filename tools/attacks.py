#!/usr/bin/python3
"""What other users' attacks cost a job: every attack of tests/attack beside a job of two ranks.

    attacks.py [--users 1] [--seconds 5] [--rounds 3] [--only NAME ...] [--open] [--write]

Each attack has daemons of its own. In every round the job runs beside as many processor hogs as there are
attackers, which attack nothing, and then beside the attack; a figure is the median of the rounds, and the
largest of all where the column says so. --write puts the table into docs/attacks.md. It needs root, to be
several users.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

from bench import commit_name, processor_name
from page_section import replace_section

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/attacks.md"
JOIN_MS, VERSION_MS, FACTOR, MORE_MS = 1000, 100, 2, 5
HEAD = ("attack", "tries to break", "blows", "ops", "lost", "join ms: p50, largest", "`version` ms: largest",
        "64 KiB p99 ms: hog, attack", "16 MiB p99 ms: hog, attack", "broken")


class Progress:
    """One line that is written over on a terminal, and a line for each attack elsewhere."""

    def __init__(self, total):
        self.total, self.done = total, 0
        self.terminal = sys.stdout.isatty()

    def show(self, name):
        self.done += 1
        text = f"{self.done}/{self.total} {name}"
        if self.terminal:
            sys.stdout.write(f"\r\x1b[K{text}")
            sys.stdout.flush()
        else:
            print(text, flush=True)

    def end(self):
        if self.terminal:
            sys.stdout.write("\r\x1b[K")


def figures(options, *words):
    done = subprocess.run([options.programs / "tern-attack-figures", *map(str, words)], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"tern-attack-figures {words[0]} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "["))]


def row_of(attack, rounds):
    """The figures of one attack, and what it has broken."""
    row = {"name": attack["name"], "promise": attack["promise"]}
    beside = [one["attack"] for one in rounds if one["attack"]]
    if len(beside) < len(rounds) or not all(one["hog"] for one in rounds):
        return row | {"broken": ["the job died"]}
    for key in ("blows", "ops", "lost", "wrong", "joins_failed", "versions_failed"):
        row[key] = sum(one[key] for one in beside)
    row["join_p50_ms"] = statistics.median(one["join_p50_ms"] for one in beside)
    for key in ("join_max_ms", "version_max_ms"):
        row[key] = max(one[key] for one in beside)
    broken = [what for what, count in (
        ("results", row["wrong"]), ("operations", row["lost"]), ("joins", row["joins_failed"]),
        ("answers", row["versions_failed"])) if count]
    broken += ["join"] if row["join_max_ms"] > JOIN_MS else []
    broken += ["version"] if row["version_max_ms"] > VERSION_MS else []
    for size in ("small", "large"):
        key = f"{size}_p99_ms"
        row[key] = statistics.median(one[key] for one in beside)
        row[f"{size}_hog_ms"] = statistics.median(one["hog"][key] for one in rounds)
        if row[key] > FACTOR * row[f"{size}_hog_ms"] + MORE_MS:
            broken.append("64 KiB p99" if size == "small" else "16 MiB p99")
    return row | {"broken": broken}


def cells(row):
    broken = ", ".join(row["broken"]) or "nothing"
    if "ops" not in row:
        return [f"`{row['name']}`", row["promise"], *[""] * 7, broken]
    return [f"`{row['name']}`", row["promise"], str(row["blows"]), str(row["ops"]), str(row["lost"]),
            f"{row['join_p50_ms']:.1f}, {row['join_max_ms']:.1f}", f"{row['version_max_ms']:.1f}",
            f"{row['small_hog_ms']:.2f}, {row['small_p99_ms']:.2f}",
            f"{row['large_hog_ms']:.0f}, {row['large_p99_ms']:.0f}", broken]


def table(rows):
    lines = [HEAD, ["---"] * 2 + ["---:"] * 7 + ["---"], *map(cells, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def section(options, rows):
    call = (f"tools/attacks.py --users {options.users} --seconds {options.seconds:g} --rounds {options.rounds} "
            f"--seed {options.seed} --write")
    cores = os.cpu_count()
    users = "one user" if options.users == 1 else f"{options.users} users at once"
    kept = sum(not row["broken"] for row in rows)
    return "\n".join([
        f"Of {commit_name()}: {processor_name()}, {cores} cores, Linux {os.uname().release.split('-')[0]}; {users}, "
        f"{options.rounds} rounds of {options.seconds:g} s each; `{call}`. {kept} of {len(rows)} attacks broke "
        "nothing.\n",
        table(rows)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--users", type=int, default=1, help="that attack at once")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these attacks")
    parser.add_argument("--open", action="store_true", help="also those without a defence yet")
    parser.add_argument("--write", action="store_true", help="put the table into docs/attacks.md")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("attacks.py: only root can be several users")
    attacks = figures(options, "list")[0]
    chosen = [one for one in attacks
              if one["name"] in options.only or not options.only and (options.open or not one["open"])]
    if unknown := set(options.only) - {one["name"] for one in attacks}:
        sys.exit(f"attacks.py: no such attack: {', '.join(sorted(unknown))}")
    progress = Progress(len(chosen))
    rows = []
    for attack in chosen:
        progress.show(attack["name"])
        rows.append(row_of(attack, figures(options, attack["name"], "--users", options.users, "--seconds",
                                           options.seconds, "--rounds", options.rounds, "--seed", options.seed)))
    progress.end()
    text = section(options, rows)
    print(text)
    if options.write:
        replace_section(PAGE, f"attacks-{options.users}", text)


if __name__ == "__main__":
    main()
