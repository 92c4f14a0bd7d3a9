#!/usr/bin/env python3
"""Runs tools/first_minute.sh some times and writes the table of docs/python.md.

    record_first_minute.py [--runs N] [WHEEL]
"""

import argparse
import os
import pathlib
import re
import subprocess
import time

from origin import commit_name, processor_name
from page_section import replace_section

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHEEL = "the wheel of `make wheel`"
PARTS = ("environment", "installation", "example", "together")


def run(wheel):
    """(load at the start, seconds of each part)."""
    said = subprocess.run([ROOT / "tools/first_minute.sh", *wheel], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    load = re.search(r"load (\S+)", said)[1]
    return load, [re.search(rf"^{part}: (\S+) s", said, re.MULTILINE)[1] for part in PARTS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("wheel", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    lines = ["| load at the start | " + " | ".join(PARTS) + " |", "|---:" * 5 + "|"]
    for _ in range(options.runs):
        load, seconds = run(options.wheel)
        lines.append(f"| {load} | " + " | ".join(f"{part} s" for part in seconds) + " |")
        print(lines[-1], flush=True)
    lines += ["", f"Commit {commit_name()}, {time.strftime('%Y-%m-%d')}, {processor_name()} with "
              f"{os.cpu_count()} cores, {options.wheel[0].name if options.wheel else WHEEL}."]
    replace_section(ROOT / "docs/python.md", "minute", "\n".join(lines))


if __name__ == "__main__":
    main()
