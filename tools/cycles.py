#!/usr/bin/python3
"""What connections leave behind: memory and descriptors of a daemon after many of each kind.

    cycles.py [--cycles 100000] [--only KIND ...] [--minutes M] [--write]

It runs the cases of tests/attack/cycles_test.cc one after the other, at the lowest priority: 1,000 connections
of a kind that come and go, and then turns of --cycles, until one adds at most a MiB; the table has the last.
After --minutes no further kind is begun, and a kind that runs by then is given up. --write puts the table into
docs/attacks.md. It needs no root.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

from origin import commit_name, processor_name
from page_section import replace_section

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/attacks.md"
MEMORY = re.compile(r"memory before and after (\d+) cycles: (-?\d+) and (-?\d+) KiB")
HEAD = ("kind", "cycles", "memory before", "at the end", "grown by", "seconds", "held")


def kinds(program):
    listed = subprocess.run([program, "--gtest_list_tests", "--gtest_filter=Kinds/Cycles.*"], capture_output=True,
                            text=True, check=True).stdout
    return re.findall(r"^  LeaveNothingBehind/(\w+)", listed, re.MULTILINE)


def parse(output):
    """Memory before and after the last turn of cycles in KiB, and how many those were; None: it said nothing of it."""
    said = MEMORY.findall(output)
    if not said:
        return None
    cycles, few, many = map(int, said[-1])
    return {"cycles": cycles, "few": few, "many": many}


def measure(program, kind, cycles, seconds):
    """One kind. None: time was up before it ended."""
    begin = time.monotonic()
    try:
        done = subprocess.run([program, f"--gtest_filter=Kinds/Cycles.LeaveNothingBehind/{kind}"],
                              env=os.environ | {"TERN_CYCLES": str(cycles)}, capture_output=True, text=True,
                              check=False, timeout=seconds, preexec_fn=lambda: os.nice(19))  # noqa: PLW1509
    except subprocess.TimeoutExpired:
        return None
    row = {"kind": kind, "held": done.returncode == 0, "seconds": time.monotonic() - begin}
    if not row["held"]:
        print(done.stdout + done.stderr, file=sys.stderr, flush=True)
    return row | (parse(done.stdout) or {})


def cells(row):
    memory = [""] * 4
    if "cycles" in row:
        grown = row["many"] - row["few"]
        memory = [f"{row['cycles']:,}", *(f"{kib:,} KiB" for kib in (row["few"], row["many"], grown))]
    return [f"`{row['kind']}`", *memory, f"{row['seconds']:.0f}", "yes" if row["held"] else "**no**"]


def table(rows):
    lines = [HEAD, ["---", *["---:"] * 5, "---"], *map(cells, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=100_000)
    parser.add_argument("--only", nargs="+", default=[], metavar="KIND")
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/tests/attack/attack_test")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    known = kinds(options.program)
    if unknown := [kind for kind in options.only if kind not in known]:
        sys.exit(f"{unknown[0]} is not one of {', '.join(known)}")
    end = time.monotonic() + options.minutes * 60
    rows, left = [], []
    for kind in options.only or known:
        seconds = end - time.monotonic()
        row = measure(options.program, kind, options.cycles, seconds) if seconds > 0 else None
        if row is None:
            left.append(kind)
            continue
        rows.append(row)
        print("  ".join(cells(row)), flush=True)
    if left:
        print(f"no time was left for {', '.join(left)}", flush=True)
    if options.write and rows:
        text = (f"Of {commit_name()}: {processor_name()}, {os.cpu_count()} cores; `tools/cycles.py "
                f"--cycles {options.cycles} --write`.\n\n{table(rows)}")
        replace_section(PAGE, "cycles", text)
    return 0 if rows and all(row["held"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
