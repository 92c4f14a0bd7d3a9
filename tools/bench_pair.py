#!/usr/bin/python3
"""All-reduce through the daemons of two builds, in turns: is one slower than the other?

    bench_pair.py OLD NEW [--starts N] [--blocks N] [--seconds S] [--within PERCENT]

OLD and NEW are folders with bin/ternd, bin/ternctl and lib/libtern.so.1; NEW has bin/tern-bench too. Both
builds' daemons run all the time, two nodes each, on a link that is not shaped. A rank is a client of both,
of each through that build's own library, and in a round has one operation with each, in a random order and
on the same values. A start is new daemons and new ranks; its rounds are cut into blocks. A block's ratio is
new time by old time, of medians or of another quantile. A start's ratio is the geometric mean of its
blocks'. Printed are the geometric mean of the starts' ratios and its 95 % interval (Student's t, of
logarithms): blocks of one start share its processes and their places in memory, and are no measurements of
their own. The same folder twice shows what the measurement itself makes of no difference. --within ends
with a size before --starts, once no end of its intervals is further than that from their mean. --hogs has
processes beside it that compute and do nothing else, all in the ordinary class. --record OLD_COMMIT
NEW_COMMIT writes the figures to docs/benchmarks.md and adds them to bench/history/pairs.jsonl.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import page_section
from bench import ROOT, run_ranks, take_real_time
from nodes import Nodes, NodesError
from origin import processor_name

PAGE = ROOT / "docs/benchmarks.md"
HISTORY = ROOT / "bench/history/pairs.jsonl"
RECIPES = ["raw", "3lc:s=1"]
# With fewer an interval may be narrow by chance.
LEAST_STARTS = 16
# And how much of the time each needs: one of 64 MiB takes as long as a thousand of 4 KiB, and varies most.
SIZES = {"4KiB": 1, "1MiB": 2, "64MiB": 20}
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


def quantile(values, share):
    """Between the two values where it lies; the median is that of 0.5."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def quantiles_of_blocks(seconds, blocks, share):
    """Of so many blocks of one size, give or take a round; of each round where there are fewer."""
    count = min(blocks, len(seconds))
    ends = [number * len(seconds) // count for number in range(count + 1)]
    return [quantile(seconds[begin:end], share) for begin, end in zip(ends, ends[1:])]


def geometric_mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


@contextlib.contextmanager
def hogs(count):
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in running:
            hog.kill()
            hog.wait()


def is_narrow(ratios, percent):
    """Whether the interval of these starts' ratios ends within so many per cent of their mean."""
    if len(ratios) < LEAST_STARTS:
        return False
    mean, low, high = interval(ratios)
    return max(mean - low, high - mean) <= percent / 100 * mean


def measure(options, sizes, logs, start):
    """{(size, recipe, bytes): the ratio of one start}."""
    sides = []
    try:
        for name in ("old", "new"):
            sides.append(Nodes(f"pair-{name}", getattr(options, name) / "bin", logs))
            sides[-1].start_daemons()
        old, new = sides
        # Each comes first as often as the other.
        order = (old, new) if start % 2 else (new, old)
        libraries = [(options.old if side is old else options.new) / "lib/libtern.so.1" for side in order]
        rows = {}
        for size in sizes:
            rows[size] = run_ranks(new, f"start{start}-{size}", lambda rank, size=size: [
                "--socket", *(side.socket(rank) for side in order),
                "--library", *libraries, "--recipe", *RECIPES,
                "--bytes", size, "--seconds", options.seconds * SIZES[size], "--settle", 4,
                "--max-rounds", 1_000_000, "--seed", start + 1, "--all-times"], sockets=False)
    finally:
        for nodes in sides:
            nodes.close()
    times = {}
    for size, of_size in rows.items():
        for row in of_size:
            is_new = order[row["daemon"]] is new
            times.setdefault((size, row["contestant"], row["bytes"]), {})[is_new] = \
                quantiles_of_blocks(row["seconds"], options.blocks, options.quantile)
    return {case: geometric_mean([new / old for new, old in zip(of_case[True], of_case[False])])
            for case, of_case in times.items()}


def table(line):
    """The section of the page."""
    old, new = line["commits"]
    rows = "\n".join(
        f"| {row['contestant'].removeprefix('tern ')} | {row['bytes']} | {row['ratio']:.3f} | "
        f"{row['low']:.3f} to {row['high']:.3f} | {row['starts']} |" for row in line["rows"])
    return (f"Daemon and library of commit {new} beside those of {old}: {line['date']}, {line['processor']}, "
            f"{line['cores']} cores, {'real-time' if line['real_time'] else 'ordinary'} class, "
            f"a seed for each start, from 1, `{line['command']}`.\n\n"
            "| recipe | bytes | time, new by old | 95 % interval | starts |\n|---|---:|---:|---|---:|\n"
            f"{rows}")


def write_down(options, rows, real_time):
    line = {"date": time.strftime("%Y-%m-%d"), "commits": options.record, "processor": processor_name(),
            "cores": os.cpu_count(), "real_time": real_time, "starts": options.starts,
            "command": f"tools/bench_pair.py OLD NEW --starts {options.starts} --blocks "
                       f"{options.blocks} --seconds {options.seconds:g}"
                       + (f" --within {options.within:g}" if options.within is not None else ""),
            "rows": rows}
    with HISTORY.open("a", encoding="utf-8") as history:
        history.write(json.dumps(line) + "\n")
    page_section.replace_section(PAGE, "pair", table(line))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=8, help="of the rounds of a start")
    parser.add_argument("--seconds", type=float, default=4, help="in a start, for the smallest size")
    parser.add_argument("--within", type=float, metavar="PERCENT",
                        help=f"of the mean; from {LEAST_STARTS} starts on")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--quantile", type=float, default=0.5, help="of a block's times, from 0 to 1")
    parser.add_argument("--hogs", type=int, default=0,
                        help="processes that compute; nothing has the real-time class then")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false",
                        help="do not use the kernel's real-time class")
    parser.add_argument("--record", nargs=2, metavar=("OLD_COMMIT", "NEW_COMMIT"))
    options = parser.parse_args()
    if options.starts < 2 or options.blocks < 1:
        parser.error("an interval needs two starts at least, and a start a block")
    if options.within is not None and options.starts < LEAST_STARTS:
        parser.error(f"--within needs up to {LEAST_STARTS} --starts at least")
    if options.record and (options.hogs or options.quantile != 0.5 or options.sizes != list(SIZES)):
        parser.error("the page has medians of all sizes without hogs")
    options.real_time &= options.hogs == 0
    real_time = take_real_time(options)
    if not real_time:
        print("in the ordinary scheduling class")
    ratios = {}
    with tempfile.TemporaryDirectory(prefix="bench-pair-logs-") as logs, hogs(options.hogs):
        sizes = list(options.sizes)
        for start in range(options.starts):
            for case, of_start in measure(options, sizes, logs, start).items():
                ratios.setdefault(case, []).append(of_start)
            if options.within is not None:
                sizes = [size for size in sizes if not all(
                    is_narrow(of_case, options.within) for case, of_case in ratios.items() if case[0] == size)]
            print(f"\rstart {start + 1} of {options.starts}", end="", file=sys.stderr, flush=True)
            if not sizes:
                break
    print(file=sys.stderr)
    rows = []
    for (_, recipe, size), of_case in ratios.items():
        mean, low, high = (round(value, 4) for value in interval(of_case))
        rows.append({"contestant": recipe, "bytes": size, "ratio": mean, "low": low, "high": high,
                     "starts": len(of_case)})
        print(f"{recipe:16} {size:9} {mean:8.3f} {low:7.3f} to {high:.3f}   {len(of_case)} starts")
    if options.record:
        write_down(options, rows, real_time)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NodesError as error:
        sys.exit(f"bench_pair.py: {error}")
