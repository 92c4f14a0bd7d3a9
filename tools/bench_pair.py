#!/usr/bin/python3
"""All-reduce by the programs of two builds, in turns: is one slower than the other?

    bench_pair.py OLD NEW [--rounds N] [--seconds S]

OLD and NEW are folders with ternd, ternctl and tern-bench. Both builds' daemons run all the time, two
nodes each, on a link that is not shaped; in a round either build's ranks run once, in changing order. A
case's ratio of a round is new time by old time, of medians. Printed are the geometric mean of the
ratios and its 95 % interval (Student's t, of logarithms).
"""

import argparse
import math
import pathlib
import statistics
import sys
import tempfile

from bench import run_ranks
from nodes import Nodes, NodesError

RECIPES = ["raw", "3lc:s=1"]
SIZES = ["4KiB", "1MiB", "64MiB"]
# Two-sided 95 % of Student's t by degrees of freedom; beyond the table 1.96 and a little.
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26,
           10: 2.23, 12: 2.18, 15: 2.13, 20: 2.09, 25: 2.06, 30: 2.04, 40: 2.02, 60: 2.00}


def student(freedom):
    return STUDENT[max(known for known in STUDENT if known <= freedom)]


def interval(ratios):
    """Geometric mean of the ratios, and the ends of its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    half = student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def measure(nodes, name, seconds):
    """{(recipe, bytes): median seconds}."""
    rows = run_ranks(nodes, name, lambda _: ["--recipe", *RECIPES, "--bytes", *SIZES,
                                             "--seconds", seconds, "--settle", 4])
    return {(row["recipe"], row["bytes"]): row["median_us"] for row in rows if "recipe" in row}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each case in a round")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("an interval needs two rounds at least")
    with tempfile.TemporaryDirectory(prefix="bench-pair-logs-") as logs:
        sides = {}
        try:
            for side in ("old", "new"):
                sides[side] = Nodes(f"pair-{side}", getattr(options, side), logs)
                sides[side].start_daemons()
            ratios = {}
            for turn in range(options.rounds):
                order = ("old", "new") if turn % 2 == 0 else ("new", "old")
                times = {side: measure(sides[side], f"turn{turn}", options.seconds)
                         for side in order}
                for case, old in times["old"].items():
                    ratios.setdefault(case, []).append(times["new"][case] / old)
                print(f"\rround {turn + 1} of {options.rounds}", end="", file=sys.stderr, flush=True)
        finally:
            for nodes in sides.values():
                nodes.close()
    print(file=sys.stderr)
    print(f"{'recipe':10} {'bytes':>9} {'new/old':>8} {'95 % interval':>16}   rounds")
    for (recipe, size), of_case in ratios.items():
        mean, low, high = interval(of_case)
        print(f"{recipe:10} {size:9} {mean:8.3f} {low:7.3f} to {high:.3f}   {len(of_case)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NodesError as error:
        sys.exit(f"bench_pair.py: {error}")
