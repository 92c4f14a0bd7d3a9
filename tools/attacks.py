#!/usr/bin/python3
"""What other users' attacks cost a job: every attack of tests/attack beside a job of two ranks.

    attacks.py [--users 1 4] [--minutes 24] [--rounds 1] [--seconds S] [--only NAME ...] [--write]

Each attack has daemons of its own. In every round the job runs beside as many processor hogs as there are
attackers, which attack nothing, and then beside the attack; a figure is the median of the rounds, and the
largest of all where the column says so. All together take --minutes at most, so that each measurement is as
long as there is time; --seconds says instead how long. --write puts a table for each number of users into
docs/attacks.md. It needs root, to be several users.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from origin import commit_name, processor_name
from page_section import replace_section

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/attacks.md"
JOIN_MS, VERSION_MS, FACTOR, MORE_MS = 1000, 100, 2, 5
CONDUCTOR_MS, LANE_MS = 20, 10
# What a trial takes beside its measurements: daemons and the job start and end.
OVERHEAD_S = 2.5
LEAST_S, MOST_S = 1.0, 10.0
HEAD = ("attack", "tries to break", "blows", "ops", "lost", "join ms: p50, largest", "`version` ms: largest",
        "64 KiB p99 ms: hog, attack", "16 MiB p99 ms: hog, attack", "longest turn ms: conductor, lane", "broken")


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
    # Since the daemons started: the last round has the largest of all.
    row["turns"] = {thread: rounds[-1]["turns"].get(thread, {}) for thread in ("conductor", "lane")}
    broken += [f"{thread} turn" for thread, turn in row["turns"].items() if turn.get("over", 0)]
    return row | {"broken": broken}


def cells(row):
    broken = ", ".join(row["broken"]) or "nothing"
    if "ops" not in row:
        return [f"`{row['name']}`", row["promise"], *[""] * 8, broken]
    return [f"`{row['name']}`", row["promise"], str(row["blows"]), str(row["ops"]), str(row["lost"]),
            f"{row['join_p50_ms']:.1f}, {row['join_max_ms']:.1f}", f"{row['version_max_ms']:.1f}",
            f"{row['small_hog_ms']:.2f}, {row['small_p99_ms']:.2f}",
            f"{row['large_hog_ms']:.0f}, {row['large_p99_ms']:.0f}",
            ", ".join(turn_text(turn) for turn in row["turns"].values()), broken]


def turn_text(turn):
    """A turn that was too long with the step that took longest."""
    text = f"{turn.get('ms', 0):.1f}"
    return f"{text} ({turn['step']})" if turn.get("over", 0) and turn.get("step") else text


def table(rows):
    lines = [HEAD, ["---"] * 2 + ["---:"] * 8 + ["---"], *map(cells, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def longest_turns(rows):
    turns = [row["turns"] for row in rows if "turns" in row]
    longest = {thread: max((one[thread].get("ms", 0) for one in turns), default=0) for thread in ("conductor", "lane")}
    over = sum(one["lane"].get("over", 0) for one in turns)
    return (f"The longest turn of a conductor was {longest['conductor']:.1f} ms (it may take {CONDUCTOR_MS} ms), "
            f"that of a lane {longest['lane']:.1f} ms with its block's codec; {over} turns of lanes took more than "
            f"{LANE_MS} ms beside that.")


def section(options, users, rows):
    length = f"--seconds {options.seconds:g}" if options.seconds else f"--minutes {options.minutes:g}"
    call = (f"tools/attacks.py --users {' '.join(map(str, options.users))} {length} --rounds {options.rounds} "
            f"--seed {options.seed} --write")
    cores = os.cpu_count()
    who = "one user" if users == 1 else f"{users} users at once"
    seconds = sorted(row["seconds"] for row in rows)
    lasting = f"{seconds[0]:.1f} to {seconds[-1]:.1f} s" if seconds[0] < seconds[-1] else f"{seconds[0]:g} s"
    kept = sum(not row["broken"] for row in rows)
    rounds = "one round" if options.rounds == 1 else f"{options.rounds} rounds"
    return "\n".join([
        f"Of {options.commit}: {processor_name()}, {cores} cores, Linux {os.uname().release.split('-')[0]}; {who}, "
        f"{rounds} of {lasting} each, seed {options.seed}; `{call}`. {kept} of {len(rows)} attacks broke nothing. "
        f"{longest_turns(rows)}\n",
        table(rows)])


class Measurements:
    """How long each may be, so that all of them end in time."""

    def __init__(self, options, trials):
        self.options, self.left = options, trials
        self.end = time.monotonic() + options.minutes * 60

    def seconds(self):
        if self.options.seconds:
            return self.options.seconds
        of_trial = (self.end - time.monotonic()) / self.left
        self.left -= 1
        return round(min(max((of_trial - OVERHEAD_S) / (2 * self.options.rounds), LEAST_S), MOST_S), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--users", type=int, nargs="+", default=[1, 4], help="that attack at once, a table for each")
    parser.add_argument("--minutes", type=float, default=24.0, help="that all take together at most")
    parser.add_argument("--seconds", type=float, help="of each measurement, however long all take")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these attacks")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/attacks.md")
    options = parser.parse_args()
    options.commit = commit_name()  # before the first table changes the page
    if os.geteuid() != 0:
        sys.exit("attacks.py: only root can be several users")
    attacks = figures(options, "list")[0]
    chosen = [one for one in attacks
              if not options.only or one["name"] in options.only]
    if unknown := set(options.only) - {one["name"] for one in attacks}:
        sys.exit(f"attacks.py: no such attack: {', '.join(sorted(unknown))}")
    progress = Progress(len(chosen) * len(options.users))
    measurements = Measurements(options, len(chosen) * len(options.users))
    for users in options.users:
        rows = []
        for attack in chosen:
            progress.show(attack["name"])
            seconds = measurements.seconds()
            rounds = figures(options, attack["name"], "--users", users, "--seconds", seconds,
                             "--rounds", options.rounds, "--seed", options.seed)
            rows.append(row_of(attack, rounds) | {"seconds": seconds})
        progress.end()
        text = section(options, users, rows)
        print(text)
        if options.write:
            replace_section(PAGE, f"attacks-{users}", text)


if __name__ == "__main__":
    main()
