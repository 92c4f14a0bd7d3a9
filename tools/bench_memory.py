#!/usr/bin/python3
"""All-reduce of values in the arena, outside of it and in a region, in turns, on shaped links between two
nodes. Each start has daemons and ranks of its own, and its medians and their ratios are one measurement.

Writes build/memory/memory.json and prints the table; with --record it goes to docs/benchmarks.md.
"""

import datetime
import json
import os
import signal
import statistics

from bench import LINKS, refill_us, run_ranks, stop_on_signal, take_real_time
from bench_report import MIB, markdown_table, size_text
from bench_rounds import ROOT, empty_logs, options_of, run_or_exit
from nodes import Nodes
from origin import commit_name, processor_name
from page_section import replace_section

MEMORIES = ("arena", "outside", "region")
# Times of values outside the arena, as multiples of those in it, at 64 MiB.
AIMS = {"1gbit": 1.10, "10gbit": 1.35}


def measure(nodes, options, name, start):
    """The rows of one link and start."""
    link = LINKS[name]
    if nodes.network:
        nodes.network.shape(link)
    words = ["--memory", ",".join(MEMORIES), "--recipe", "raw", "--bytes", ",".join(map(str, options.bytes)),
             "--seconds", options.seconds, "--min-rounds", options.rounds,
             "--pause-us", refill_us(link) if nodes.network else 0]
    daemons = nodes.start_daemons()
    rows = run_ranks(nodes, f"memory-{name}-{start}", lambda rank: words)
    nodes.stop(daemons)
    return [row | {"link": name, "start": start} for row in rows]


def where(row):
    return row["contestant"].partition(", ")[2] or "arena"


def middle(values):
    """Median, least and most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def related(rows):
    """A line for each link and size: medians over starts, and how those of a start relate to its arena's."""
    lines = []
    for link in dict.fromkeys(row["link"] for row in rows):
        for size in dict.fromkeys(row["bytes"] for row in rows):
            starts = {}
            for row in rows:
                if (row["link"], row["bytes"]) == (link, size):
                    starts.setdefault(row["start"], {})[where(row)] = row
            of = {memory: [start[memory]["median_us"] for start in starts.values()] for memory in MEMORIES}
            lines.append({"link": link, "bytes": size, "starts": len(starts),
                          "rounds": sum(start["arena"]["rounds"] for start in starts.values()),
                          "median_us": {memory: statistics.median(of[memory]) for memory in MEMORIES},
                          **{memory: middle([one / arena for one, arena in zip(of[memory], of["arena"])])
                             for memory in MEMORIES[1:]},
                          "aim": AIMS.get(link) if size == 64 * MIB else None})
    return lines


def ratio_text(ratio):
    return f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"


def table(lines):
    header = ["link", "size", "rounds", "arena", "outside", "region", "outside : arena", "aim", "region : arena"]
    return markdown_table(header, [[
        line["link"], size_text(line["bytes"]), str(line["rounds"]),
        *(f"{line['median_us'][memory] / 1e3:,.2f} ms" for memory in MEMORIES),
        ratio_text(line["outside"]), f"at most {line['aim']:.2f}" if line["aim"] else "-",
        ratio_text(line["region"])] for line in lines])


def section(result):
    return "\n".join([
        table(result["lines"]), "",
        f"Medians of all-reduces of f32, raw, between two nodes; contestants in turns in each round. Of "
        f"{result['lines'][0]['starts']} starts of daemons and ranks the median, and of ratios the least and the "
        f"most too; rounds are those of all starts. Measured "
        f"{result['date'][:10]} at commit {result['commit']} on {result['processor']}, {result['cores']} cores, "
        f"kernel {result['kernel']}, {'real-time' if result['real_time'] else 'ordinary'} class, by "
        "`tools/bench_memory.py --record`."])


def run(options):
    nodes = Nodes("tern-memory", options.programs, empty_logs(options), loopback=options.loopback)
    real_time = take_real_time(options)
    try:
        rows = [row for start in range(options.starts) for link in options.links
                for row in measure(nodes, options, link, start)]
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
    parser.add_argument("--starts", type=int, default=3, help="of daemons and ranks, each with its own medians")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false")
    parser.add_argument("--record", action="store_true", help="write docs/benchmarks.md")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_on_signal)
    run_or_exit(run, parser.parse_args())


if __name__ == "__main__":
    main()
