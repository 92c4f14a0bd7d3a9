#!/usr/bin/python3
"""All-reduce of values in the arena, outside of it and in a region, in turns, on shaped links between two
nodes.

Writes build/memory/memory.json and prints the table; with --record it goes to docs/benchmarks.md.
"""

import datetime
import json
import os
import signal

from bench import LINKS, refill_us, run_ranks, stop_on_signal, take_real_time
from bench_report import MIB, markdown_table, size_text
from bench_rounds import ROOT, empty_logs, options_of, run_or_exit
from nodes import Nodes
from origin import commit_name, processor_name
from page_section import replace_section

MEMORIES = ("arena", "outside", "region")
# Times of values outside the arena, as multiples of those in it, at 64 MiB.
AIMS = {"1gbit": 1.10, "10gbit": 1.35}


def measure(nodes, options, name):
    """The rows of one link."""
    link = LINKS[name]
    if nodes.network:
        nodes.network.shape(link)
    words = ["--memory", ",".join(MEMORIES), "--recipe", "raw", "--bytes", ",".join(map(str, options.bytes)),
             "--seconds", options.seconds, "--min-rounds", options.rounds,
             "--pause-us", refill_us(link) if nodes.network else 0]
    daemons = nodes.start_daemons()
    rows = run_ranks(nodes, f"memory-{name}", lambda rank: words)
    nodes.stop(daemons)
    return [row | {"link": name} for row in rows]


def where(row):
    return row["contestant"].partition(", ")[2] or "arena"


def related(rows):
    """A line for each link and size: medians, and how they relate to the arena's."""
    lines = []
    for link in dict.fromkeys(row["link"] for row in rows):
        for size in dict.fromkeys(row["bytes"] for row in rows):
            of = {where(row): row for row in rows if (row["link"], row["bytes"]) == (link, size)}
            medians = {memory: of[memory]["median_us"] for memory in MEMORIES}
            lines.append({"link": link, "bytes": size, "rounds": of["arena"]["rounds"], "median_us": medians,
                          "outside": medians["outside"] / medians["arena"],
                          "region": medians["region"] / medians["arena"],
                          "aim": AIMS.get(link) if size == 64 * MIB else None})
    return lines


def table(lines):
    header = ["link", "size", "rounds", "arena", "outside", "region", "outside : arena", "aim", "region : arena"]
    return markdown_table(header, [[
        line["link"], size_text(line["bytes"]), str(line["rounds"]),
        *(f"{line['median_us'][memory] / 1e3:,.2f} ms" for memory in MEMORIES),
        f"{line['outside']:.2f}", f"at most {line['aim']:.2f}" if line["aim"] else "-",
        f"{line['region']:.2f}"] for line in lines])


def section(result):
    return "\n".join([
        table(result["lines"]), "",
        f"Medians of all-reduces of f32, raw, between two nodes; contestants in turns in each round. Measured "
        f"{result['date'][:10]} at commit {result['commit']} on {result['processor']}, {result['cores']} cores, "
        f"kernel {result['kernel']}, {'real-time' if result['real_time'] else 'ordinary'} class, by "
        "`tools/bench_memory.py --record`."])


def run(options):
    nodes = Nodes("tern-memory", options.programs, empty_logs(options), loopback=options.loopback)
    real_time = take_real_time(options)
    try:
        rows = [row for link in options.links for row in measure(nodes, options, link)]
    finally:
        nodes.close()
    result = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "commit": commit_name(), "processor": processor_name(), "cores": os.cpu_count(),
              "kernel": os.uname().release.split("-")[0], "real_time": real_time, "rows": rows,
              "lines": related(rows)}
    (options.out / "memory.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(section(result), flush=True)
    if options.record:
        replace_section(ROOT / "docs/benchmarks.md", "memory", section(result))


def main():
    parser = options_of(__doc__, "memory", None)
    parser.add_argument("--links", nargs="+", choices=list(LINKS), default=["1gbit", "10gbit"])
    parser.add_argument("--bytes", nargs="+", type=int, default=[MIB, 64 * MIB])
    parser.add_argument("--seconds", type=float, default=20.0, help="for each size and link")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false")
    parser.add_argument("--record", action="store_true", help="write docs/benchmarks.md")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_on_signal)
    run_or_exit(run, parser.parse_args())


if __name__ == "__main__":
    main()
