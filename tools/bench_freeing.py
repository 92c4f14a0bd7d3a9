#!/usr/bin/python3
"""How long a thread that maps memory waits while another frees what a client or a tensor has left.

Runs `tern-bench freeing`, which frees the same at once and as the daemon does, in turns, and prints the
table; with --record it goes to docs/architecture.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess

from bench_report import markdown_table, size_text
from origin import ROOT, commit_name, processor_name
from page_section import replace_section

WHAT = {"arena": "a filled arena", "state": "a tensor's residual"}


def section(rows, command):
    table = markdown_table(["freed", "size", "at once", "in slices, with pauses"], [[
        WHAT[row["of"]], size_text(row["bytes"]), f"{row['at_once_ms']:.1f} ms", f"{row['in_slices_ms']:.2f} ms"]
        for row in rows])
    date = datetime.datetime.now(datetime.timezone.utc).date()
    return "\n".join([
        table, "",
        "The longest that another thread needed to map 512 KiB, touch and unmap them while that went on; the "
        f"median of {rows[0]['rounds']} rounds. Measured {date} at commit {commit_name()} on {processor_name()}, "
        f"{os.cpu_count()} cores, Linux {os.uname().release.split('-')[0]}, by `{command}`."])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bench", type=pathlib.Path, default=ROOT / "build/release/bin/tern-bench")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--record", action="store_true", help="write docs/architecture.md")
    options = parser.parse_args()
    done = subprocess.run([options.bench, "freeing", "--rounds", str(options.rounds)],
                          stdout=subprocess.PIPE, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    text = section(rows, f"tools/bench_freeing.py --rounds {options.rounds} --record")
    print(text, flush=True)
    if options.record:
        replace_section(ROOT / "docs/architecture.md", "freeing", text)


if __name__ == "__main__":
    main()
