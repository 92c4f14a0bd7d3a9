#!/usr/bin/python3
"""Every collective through Tern and through Gloo, in turns, between network namespaces of this machine.

    bench_collectives.py [--nodes N...] [--links LINK...] [--sizes SIZE...] [--seconds S] [--write]

A round has one operation of each, in a random order; the time of an operation is that of the slowest
rank, and a row's time the median of its rounds. --write puts the table into docs/benchmarks.md and adds a
line to bench/history/collectives.jsonl.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import page_section
from bench import LINKS, ROOT, commit_name, processor_name, refill_us, run_ranks, take_real_time
from nodes import Nodes, NodesError

PAGE = ROOT / "docs/benchmarks.md"
HISTORY = ROOT / "bench/history/collectives.jsonl"
SIZES = ["4KiB", "1MiB", "64MiB"]
NAMES = {4096: "4 KiB", 1 << 20: "1 MiB", 64 << 20: "64 MiB"}


def measure(options, logs, count, name):
    """The rows of one link between so many nodes."""
    nodes = Nodes("collectives", options.programs, logs, count=count)
    try:
        if not nodes.network:
            raise NodesError(f"no network namespaces: {nodes.why_no_network}")
        nodes.network.shape(LINKS[name])
        nodes.start_daemons()
        rows = run_ranks(nodes, f"collectives-{name}", lambda rank: [
            "--socket", nodes.socket(rank), "--gloo-address", nodes.address(rank),
            "--bytes", ",".join(options.sizes), "--seconds", options.seconds,
            "--pause-us", refill_us(LINKS[name]), "--seed", options.seed],
            sockets=False, command="collectives")
    finally:
        nodes.close()
    return [row | {"link": name} for row in rows]


def paired(rows):
    """One row for each operation, with the times of both; None where Gloo has no such operation."""
    cases = {}
    for row in rows:
        case = (row["nodes"], row["link"], row["kind"], row["bytes"])
        cases.setdefault(case, {})[row["contestant"]] = row
    for (count, link, kind, size), sides in cases.items():
        gloo = sides.get("gloo")
        yield {"nodes": count, "link": link, "kind": kind, "bytes": size,
               "rounds": sides["tern"]["rounds"], "tern_us": sides["tern"]["median_us"],
               "gloo_us": gloo and gloo["median_us"],
               "speed": gloo and gloo["median_us"] / sides["tern"]["median_us"]}


def table(line):
    rows = "\n".join(
        f"| {row['nodes']} | {row['link']} | `{row['kind']}` | "
        f"{NAMES.get(row['bytes'], row['bytes'])} | {row['tern_us']:,.0f} | "
        + (f"{row['gloo_us']:,.0f} | {row['speed']:.2f} |" if row["gloo_us"] else "- | - |")
        for row in line["rows"])
    return (f"Commit {line['commit']}: {line['date']}, {line['processor']}, {line['cores']} cores, "
            f"{'real-time' if line['real_time'] else 'ordinary'} class, seed {line['seed']}, "
            f"`{line['command']}`. Times in microseconds; speed is Gloo's time by Tern's.\n\n"
            "| nodes | link | operation | bytes in all | Tern | Gloo | speed |\n"
            "|---:|---|---|---:|---:|---:|---:|\n" + rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--nodes", type=int, nargs="+", default=[2])
    parser.add_argument("--links", nargs="+", choices=list(LINKS), default=["1gbit", "unshaped"])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="of all elements together")
    parser.add_argument("--seconds", type=float, default=2, help="for each operation and size")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-real-time", dest="real_time", action="store_false",
                        help="do not use the kernel's real-time class")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    real_time = take_real_time(options)
    rows = []
    try:
        with tempfile.TemporaryDirectory() as logs:
            for count in options.nodes:
                for name in options.links:
                    print(f"{count} nodes, {name}", file=sys.stderr, flush=True)
                    rows += measure(options, pathlib.Path(logs), count, name)
    except NodesError as error:
        sys.exit(f"bench_collectives.py: {error}")
    words = f"--nodes {' '.join(map(str, options.nodes))} --links {' '.join(options.links)}"
    if options.sizes != SIZES:
        words += f" --sizes {' '.join(options.sizes)}"
    line = {"date": time.strftime("%Y-%m-%d"), "commit": commit_name(),
            "processor": processor_name(), "cores": os.cpu_count(), "real_time": real_time,
            "seed": options.seed,
            "command": f"tools/bench_collectives.py {words} --seconds {options.seconds:g}",
            "rows": list(paired(rows))}
    print(table(line))
    if options.write:
        with HISTORY.open("a", encoding="utf-8") as history:
            history.write(json.dumps(line) + "\n")
        page_section.replace_section(PAGE, "collectives", table(line))


if __name__ == "__main__":
    main()
