#!/usr/bin/python3
"""Processor time of idle daemons of two builds, at the same time: does one use more?

    bench_idle.py OLD NEW [--starts N] [--seconds S] [--record OLD_COMMIT NEW_COMMIT]

OLD and NEW are as for bench_pair.py: two nodes each on a link that is not shaped. In a start both builds'
daemons are new. They are looked at for S seconds without a client, and as long while the two ranks of a
group have joined and wait. A start's ratio is the new daemons' processor time by the old ones'. Printed are
the medians of the times, in percent of a core for each daemon, and the geometric mean of the ratios with its
95 % interval. --record writes the figures to docs/benchmarks.md.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

import page_section
from bench import ROOT, run_ranks
from bench_daemon import SETTLE_SECONDS, processor_seconds
from bench_pair import interval
from nodes import Nodes, NodesError
from origin import processor_name

PAGE = ROOT / "docs/benchmarks.md"
STATES = ("no client", "joined group")


def used(sides, seconds):
    """Percent of a core that a daemon of each side takes, all looked at in the same time."""
    time.sleep(SETTLE_SECONDS)

    def all_of(daemons):
        return sum(processor_seconds(daemon.pid) for daemon in daemons)
    before = [all_of(daemons) for daemons in sides]
    begin = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begin
    return [100 * (all_of(daemons) - start) / len(daemons) / passed for daemons, start in zip(sides, before)]


def measure(options, logs, start):
    """{state: (percent of the old ones, of the new ones)}."""
    nodes, daemons, figures = [], [], {}
    try:
        for name in ("old", "new"):
            nodes.append(Nodes(f"idle-{name}", getattr(options, name) / "bin", logs))
            daemons.append(nodes[-1].start_daemons())
        old, new = nodes
        figures["no client"] = used(daemons, options.seconds)

        def look():
            figures["joined group"] = used(daemons, options.seconds)
        run_ranks(new, f"start{start}", lambda rank: [
            "--socket", old.socket(rank), new.socket(rank),
            "--library", options.old / "lib/libtern.so.1", options.new / "lib/libtern.so.1",
            "--recipe", "raw", "--bytes", "4KiB", "--min-rounds", 1, "--max-rounds", 1,
            "--idle", options.seconds + 2 * SETTLE_SECONDS], look, sockets=False)
    finally:
        for one in nodes:
            one.close()
    return figures


def row_of(state, figures):
    old, new = zip(*figures)
    mean, low, high = interval([after / before for before, after in figures])
    return {"state": state, "old": statistics.median(old), "new": statistics.median(new), "ratio": mean,
            "low": low, "high": high}


def section(options, rows):
    old, new = options.record
    lines = "\n".join(f"| {row['state']} | {row['old']:.3f} | {row['new']:.3f} | {row['ratio']:.2f} | "
                      f"{row['low']:.2f} to {row['high']:.2f} |" for row in rows)
    return (f"Idle daemons of commit {new} beside those of {old}: {time.strftime('%Y-%m-%d')}, "
            f"{processor_name()}, {os.cpu_count()} cores, {options.starts} starts, `tools/bench_idle.py OLD NEW "
            f"--starts {options.starts} --seconds {options.seconds:g}`.\n\n"
            "| daemon with | percent of a core, old | new | new by old | 95 % interval |\n"
            f"|---|---:|---:|---:|---|\n{lines}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each look")
    parser.add_argument("--record", nargs=2, metavar=("OLD_COMMIT", "NEW_COMMIT"))
    options = parser.parse_args()
    if options.starts < 2:
        parser.error("an interval needs two starts at least")
    figures = {state: [] for state in STATES}
    with tempfile.TemporaryDirectory(prefix="bench-idle-logs-") as logs:
        for start in range(options.starts):
            for state, of_start in measure(options, logs, start).items():
                figures[state].append(of_start)
            print(f"\rstart {start + 1} of {options.starts}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows = [row_of(state, of_state) for state, of_state in figures.items()]
    for row in rows:
        print(f"{row['state']:14} {row['old']:.3f} % and {row['new']:.3f} % of a core   {row['ratio']:.2f} "
              f"({row['low']:.2f} to {row['high']:.2f})")
    if options.record:
        page_section.replace_section(PAGE, "idle", section(options, rows))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NodesError as error:
        sys.exit(f"bench_idle.py: {error}")
