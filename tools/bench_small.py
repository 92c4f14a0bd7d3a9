#!/usr/bin/python3
"""Small all-reduces back to back, compressed and raw: what the one hop of a block gains.

    bench_small.py [--nodes N...] [--links LINK...] [--sizes SIZE...] [--seeds N...] [--seconds S]
                   [--record]

For each seed, number of nodes and link the daemons run once with `eager_form = 1`, under which what
is compressed takes two legs, and once with 2. In a round each recipe and Gloo have one operation,
in a random order, without a wait between them; `auto` has those in which it learns, too. The time of
a case is the median over the seeds of the medians of their rounds. --record puts the table into docs/benchmarks.md and adds a line to
bench/history/small.jsonl.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import page_section
from bench import LINKS, ROOT, run_ranks, take_real_time
from nodes import Nodes, NodesError
from origin import commit_name, processor_name

PAGE = ROOT / "docs/benchmarks.md"
HISTORY = ROOT / "bench/history/small.jsonl"
RECIPES = ["raw", "bf16", "3lc:s=1", "ef(int:bits=4)", "auto"]
SIZES = ["16KiB", "64KiB"]
FORMS = [1, 2]


def measure(options, logs, part):
    """The rows of one seed on one link between so many nodes, in one form."""
    seed, count, name, form = part
    nodes = Nodes("small", options.programs, logs, count=count)
    try:
        if not nodes.network:
            raise NodesError(f"no network namespaces: {nodes.why_no_network}")
        nodes.settings = f"\n[ops]\neager_form = {form}\n"
        nodes.network.shape(LINKS[name])
        nodes.start_daemons()
        rows = run_ranks(nodes, f"small-{name}", lambda rank: [
            "--gloo-address", nodes.address(rank), "--bytes", ",".join(options.sizes),
            "--seconds", options.seconds, "--max-rounds", 100_000, "--seed", seed,
            "--recipe", *RECIPES])
    finally:
        nodes.close()
    return [row | {"nodes": count, "link": name, "seed": seed, "form": form} for row in rows]


def medians(rows):
    """{(nodes, link, bytes): {(form, contestant): the median over the seeds, in microseconds}}"""
    seeds = {}
    for row in rows:
        case = seeds.setdefault((row["nodes"], row["link"], row["bytes"]), {})
        contestant = row["contestant"].removeprefix("tern ")
        case.setdefault((row["form"], contestant), []).append(row["median_us"])
    return {case: {side: statistics.median(values) for side, values in sides.items()}
            for case, sides in seeds.items()}


def table(line):
    def cell(times, recipe):
        now, before = (times[(form, "raw")] / times[(form, recipe)] for form in (2, 1))
        return f"{now:.2f} ({before:.2f})"

    rows = []
    for case in line["rows"]:
        times = {(form, name): us for form, name, us in case["times"]}
        gloo = times[(2, "gloo")]
        rows.append(f"| {case['nodes']} | {case['link']} | {case['bytes'] // 1024} KiB "
                    f"| {gloo:,.0f} us | {times[(2, 'raw')]:,.0f} us | "
                    + " | ".join(cell(times, recipe) for recipe in RECIPES[1:]) + " |")
    names = " | ".join(f"`{recipe}`" for recipe in RECIPES[1:])
    return (f"Commit {line['commit']}: {line['date']}, {line['processor']}, {line['cores']} cores, "
            f"{'real-time' if line['real_time'] else 'ordinary'} class, seeds "
            f"{', '.join(map(str, line['seeds']))}, `{line['command']}`. Of each recipe how many "
            "times as fast as raw it is in the same rounds, and in brackets how many times where "
            "it takes two legs.\n\n"
            f"| nodes | link | bytes | Gloo | raw | {names} |\n"
            f"|---:|---|---:|---:|---:|{'---:|' * (len(RECIPES) - 1)}\n" + "\n".join(rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--links", nargs="+", choices=list(LINKS), default=list(LINKS))
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seconds", type=float, default=2, help="for each size")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false",
                        help="do not use the kernel's real-time class")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    real_time = take_real_time(options)
    parts = [(seed, count, name, form) for seed in options.seeds for count in options.nodes
             for name in options.links for form in FORMS]
    rows = []
    try:
        with tempfile.TemporaryDirectory() as logs:
            for index, part in enumerate(parts):
                print(f"\r{index} of {len(parts)}", end="", file=sys.stderr, flush=True)
                rows += measure(options, pathlib.Path(logs), part)
    except NodesError as error:
        sys.exit(f"bench_small.py: {error}")
    print(file=sys.stderr)
    words = ["tools/bench_small.py"]
    for name in ["nodes", "links", "sizes", "seconds"]:
        value = getattr(options, name)
        if value != parser.get_default(name):
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    line = {"date": time.strftime("%Y-%m-%d"), "commit": commit_name(),
            "processor": processor_name(), "cores": os.cpu_count(), "real_time": real_time,
            "seeds": options.seeds, "command": " ".join(words),
            "rows": [{"nodes": count, "link": name, "bytes": size,
                      "times": [[form, contestant, us] for (form, contestant), us in times.items()]}
                     for (count, name, size), times in medians(rows).items()]}
    print(table(line))
    if options.record:
        with HISTORY.open("a", encoding="utf-8") as history:
            history.write(json.dumps(line) + "\n")
        page_section.replace_section(PAGE, "small", table(line))


if __name__ == "__main__":
    main()
