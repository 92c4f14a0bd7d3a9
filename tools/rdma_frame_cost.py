#!/usr/bin/python3
"""Instructions for each frame of 256 KiB over RDMA, by callgrind, on verbs without hardware.

    rdma_frame_cost.py PROGRAM [--record FILE]

PROGRAM is build/release/tests/rdma/rdma_frame_cost. Two runs of different length cancel what is not of
frames. What the mock itself executes is left out: a device does that.
"""

import argparse
import collections
import datetime
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from origin import commit_name

SHORT, LONG = 100, 400
LINE = re.compile(r"^\s*([\d,]+)(?: \([^)]*\))?\s+\S*?:(.+?)(?: \[[^\]]*\])?$")
# The first that a function's name holds; what the mock calls of the C library is counted with the copies.
PARTS = (("mock", "tern::rdma::mock"), ("rdma", "tern::rdma"), ("rdma", "tern::net::FrameReceiver"),
         ("link", "tern::net"), ("wire", "tern::wire"), ("copies", "memcpy"), ("copies", "memmove"))


def part_of(function):
    return next((part for part, mark in PARTS if mark in function), "other")


def count(program, frames, *more):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "callgrind.out"
        subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, str(frames), *more],
                       check=True, capture_output=True)
        listing = subprocess.run(["callgrind_annotate", "--threshold=100", out], check=True, capture_output=True,
                                 text=True).stdout
    parts = collections.Counter()
    for line in listing.split("\n"):
        found = LINE.match(line)
        if found and "PROGRAM TOTALS" not in line:
            parts[part_of(found[2])] += int(found[1].replace(",", ""))
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--record", help="adds a line of JSON to this file")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is needed: apt-get install valgrind")
    rows = []
    for name, more in (("payload CRC", ()), ("no payload CRC", ("no-crc",))):
        short, long = count(arguments.program, SHORT, *more), count(arguments.program, LONG, *more)
        each = {part: round((long[part] - short[part]) / (LONG - SHORT)) for part in long}
        rows.append({"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                     "commit": commit_name(), "frame_bytes": 256 << 10, "what": name, "instructions": each})
        print(f"{name:15} " + ", ".join(f"{part} {each.get(part, 0):,}"
                                        for part in ("rdma", "link", "wire", "copies", "other", "mock")))
    if arguments.record:
        with open(arguments.record, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
