#!/usr/bin/python3
"""Every collective through Tern, Gloo and Open MPI, in turns, between namespaces of this machine.

    bench_collectives.py [--nodes N...] [--links LINK...] [--sizes SIZE...] [--kinds KIND...]
                         [--seeds N...] [--minutes M] [--no-mpi] [--back-to-back]
                         [--write [SECTION]]

A round has one operation of each, in a random order; the time of an operation is that of the
slowest rank. A case (nodes, link, operation, bytes) is measured once for each seed; its time is the
median over the seeds of the medians of their rounds. All have the same scheduling class. The time
that --minutes gives is divided among the cases, but a case takes one round to warm up and two that
count however long they are. The rows of a seed, a number of nodes and a link are kept in
build/collectives when they are measured, and the same command goes on where it was interrupted.
Open MPI stands still now and then, for longer than a minute: such rows are measured again, and the
table says how often that was.
Gloo has three algorithms for all_reduce, and its time is that of the fastest. Beside the times there is
the share of TCP segments that all nodes sent again while Tern, and Gloo by that algorithm, worked, and
the processor time of their processes on a node, Tern's daemons among them, for each byte.
--write puts the table into docs/benchmarks.md, in its section `collectives` or the one that is named, and
adds a line to bench/history/collectives.jsonl.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import statistics
import sys
import tempfile
import threading
import time

import page_section
from bench import LINKS, ROOT, refill_us, run_ranks, take_real_time
from kept_runs import KeptRuns
from nodes import Nodes, NodesError
from origin import commit_name, processor_name

PAGE = ROOT / "docs/benchmarks.md"
HISTORY = ROOT / "bench/history/collectives.jsonl"
KEPT = ROOT / "build/collectives/runs.jsonl"
SIZES = ["4KiB", "1MiB", "64MiB"]
NAMES = {4096: "4 KiB", 64 << 10: "64 KiB", 1 << 20: "1 MiB", 4 << 20: "4 MiB", 16 << 20: "16 MiB",
         64 << 20: "64 MiB"}
KINDS = ["all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "gather", "scatter",
         "all_to_all", "ping_pong"]
SEEDS = [1, 2, 3]
OTHERS = ["gloo", "openmpi"]
# By the names of its contestants in the rows.
GLOO = {"gloo": "ring", "gloo_bcube": "bcube", "gloo_halving_doubling": "halving-doubling"}
NETWORK = "10.77.0.0/24"
ROUNDS = ["--warm-up", 1, "--min-rounds", 2]
# What is left for the rounds of a case beside daemons, hand-shakes and buffers.
USEFUL = 0.8
LEAST_SECONDS = 0.05
TRIES = 4
# Longer than mpirun and the first case ever took.
BEGIN_SECONDS = 120


class NeverBegan(NodesError):
    """Open MPI has not started the ranks: mpirun waits for agents of which one has gone."""


def rank_words(nodes, rank, daemon, options, link, seed, seconds):
    return ["--socket", nodes.socket(rank), "--daemon", daemon.pid,
            "--gloo-address", nodes.address(rank),
            "--bytes", ",".join(options.sizes), "--kind", ",".join(options.kinds),
            "--seconds", f"{seconds:.3f}", *ROUNDS, "--seed", seed,
            "--pause-us", 0 if options.back_to_back else refill_us(link)]


def run_mpi_ranks(nodes, name, words):
    """As run_ranks, where mpirun starts the ranks: its agent, which is ssh elsewhere, enters the
    namespace of the node."""
    folder = nodes.folder / name
    folder.mkdir()
    agent = folder / "agent"
    agent.write_text("#!/bin/sh\n# agent ADDRESS COMMAND...\nnode=$((${1##*.} - 1))\nshift\n"
                     f'exec ip netns exec "{nodes.network.name}-$node" sh -c "$*"\n',
                     encoding="utf-8")
    agent.chmod(0o755)
    settings = {"plm_rsh_agent": agent, "btl": "tcp,self", "btl_tcp_if_include": NETWORK,
                "oob_tcp_if_include": NETWORK,
                # Node 0 starts the others itself, and speaks to each without another between.
                "plm_rsh_no_tree_spawn": 1, "routed": "direct",
                # With fewer processors than ranks, who waits lets others work.
                "mpi_yield_when_idle": int(nodes.count > (os.cpu_count() or 1))}
    command = ["mpirun", "--allow-run-as-root", "--bind-to", "none"]
    for key, value in settings.items():
        command += ["--mca", key, value]
    for rank in range(nodes.count):
        command += [":"] if rank else []
        command += ["-np", 1, "--host", nodes.address(rank),
                    nodes.programs / "tern-bench-mpi", "collectives", "--mpi",
                    "--folder", folder, "--rank", rank, "--size", nodes.count, *words(rank)]
    run = nodes.start(0, name, command)
    given_up = threading.Event()

    def give_up():
        given_up.set()
        run.kill()
    rows = []
    patience = threading.Timer(BEGIN_SECONDS, give_up)
    patience.start()
    for row in map(json.loads, run.stdout):
        patience.cancel()
        if row.pop("event") == "row":
            rows.append(row)
    patience.cancel()
    if run.wait(30) != 0:
        if given_up.is_set():
            raise NeverBegan(f"{name}: mpirun has started no rank within {BEGIN_SECONDS} s")
        names = [name] + [f"ternd{node}" for node in range(nodes.count)]
        tails = [tail for tail in map(nodes.log_tail, names) if tail]
        said = shlex.join(str(word) for word in command)
        raise NodesError("\n".join([f"{name}: mpirun failed: {said}", *tails]))
    nodes.stop([run])
    return rows


def measure(options, logs, part, seconds):
    """The rows of one seed on one link between so many nodes, `seconds` for each case."""
    seed, count, name = part
    nodes = Nodes("collectives", options.programs, logs, count=count,
                  daemon_options=options.daemon_option)
    try:
        if not nodes.network:
            raise NodesError(f"no network namespaces: {nodes.why_no_network}")
        nodes.network.shape(LINKS[name])
        daemons = nodes.start_daemons()

        def words(rank):
            return rank_words(nodes, rank, daemons[rank], options, LINKS[name], seed, seconds)

        if options.mpi:
            rows = run_mpi_ranks(nodes, f"collectives-{name}", words)
        else:
            rows = run_ranks(nodes, f"collectives-{name}", words, sockets=False,
                             command="collectives")
    finally:
        nodes.close()
    return [row | {"link": name, "seed": seed} for row in rows]


def is_stop_of_mpi(error):
    """Whether each rank that says where it gave up names an operation of Open MPI."""
    contestants = re.findall(r"rank \d+: .*\((\w+): ", str(error))
    return bool(contestants) and set(contestants) == {"openmpi"}


def measure_patiently(options, logs, part, seconds):
    """What measure() gives, and how often Open MPI stood still before."""
    stops = 0
    while True:
        try:
            return measure(options, logs, part, seconds), stops
        except NodesError as error:
            stops += 1
            if stops == TRIES or not (isinstance(error, NeverBegan) or is_stop_of_mpi(error)):
                raise
            print("Open MPI stands still: once more", file=sys.stderr, flush=True)


def measure_all(options, logs):
    """What is kept of all parts, one after the other, for what else the machine does meets all cases
    alike."""
    parts = [(seed, count, name) for seed in options.seeds for count in options.nodes
             for name in options.links]
    cases = len(options.kinds) * len(options.sizes)
    kept = KeptRuns(KEPT)
    keys = [{"commit": commit_name(), "seed": seed, "nodes": count, "link": name,
             "sizes": options.sizes, "kinds": options.kinds, "mpi": options.mpi,
             "minutes": options.minutes, "real_time": options.real_time,
             "daemon_options": options.daemon_option, "back_to_back": options.back_to_back,
             "programs": str(options.programs)} for seed, count, name in parts]
    missing = [key for key in keys if kept.find(key) is None]
    # What is left of a run that was stopped has no more time for each case than it had.
    end = time.monotonic() + 60 * options.minutes * len(missing) / len(parts)
    for index, key in enumerate(missing):
        left = max(0.0, end - time.monotonic()) * USEFUL / (len(missing) - index)
        part = (key["seed"], key["nodes"], key["link"])
        print(f"seed {part[0]}, {part[1]} nodes, {part[2]}", file=sys.stderr, flush=True)
        begin = time.monotonic()
        rows, stops = measure_patiently(options, logs, part, max(LEAST_SECONDS, left / cases))
        kept.keep(key, {"rows": rows, "minutes": (time.monotonic() - begin) / 60, "stops": stops})
    return [kept.find(key) for key in keys]


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)


def sent_again(rows):
    """Of the segments of these rows; None where nobody counted any."""
    segments = sum(row.get("segments", 0) for row in rows)
    return sum(row["sent_again"] for row in rows) / segments if segments else None


def processor_ns_a_byte(rows):
    """Of all processes of a node, by operation and byte of the whole; None where nobody measured it."""
    values = [1e3 * row["processor_us"] / row["nodes"] / row["bytes"]
              for row in rows if "processor_us" in row]
    return statistics.median(values) if values else None


def compared(rows):
    """One row for each case, with the times of all; None where another has no such operation."""
    cases = {}
    for row in rows:
        case = (row["nodes"], row["link"], row["kind"], row["bytes"])
        cases.setdefault(case, {}).setdefault(row["contestant"], []).append(row)
    for (count, link, kind, size), sides in cases.items():
        medians = {name: [row["median_us"] for row in of_seeds] for name, of_seeds in sides.items()}
        times = {name: statistics.median(values) for name, values in medians.items()}
        best = min((name for name in GLOO if name in times), key=times.get, default=None)
        if best is not None:
            times["gloo"], medians["gloo"] = times[best], medians[best]
        others = [times[name] for name in OTHERS if name in times]
        yield {"nodes": count, "link": link, "kind": kind, "bytes": size,
               "rounds": sum(row["rounds"] for row in sides["tern"]),
               **{f"{name}_us": times.get(name) for name in ["tern", *OTHERS]},
               "gloo_algorithm": GLOO[best] if best and "gloo_bcube" in sides else None,
               "sent_again": {name: sent_again(sides[of]) for name, of in (("tern", "tern"), ("gloo", best))
                              if of in sides},
               "processor_ns_a_byte": {name: processor_ns_a_byte(sides[of])
                                       for name, of in (("tern", "tern"), ("gloo", best))
                                       if of in sides},
               "spread": {name: spread(values) for name, values in medians.items()},
               "speed": min(others) / times["tern"] if others else None}


def table(line):
    def cell(row, name):
        if row[f"{name}_us"] is None:
            return "-"
        by = f" ({row['gloo_algorithm']})" if name == "gloo" and row["gloo_algorithm"] else ""
        spread_of_seeds = f" ±{50 * row['spread'][name]:.0f} %" if len(line["seeds"]) > 1 else ""
        return f"{row[f'{name}_us']:,.0f}{spread_of_seeds}{by}"

    def again(row):
        shares = [row["sent_again"].get(name) for name in ("tern", "gloo")]
        return " / ".join("-" if share is None else f"{100 * share:.2f}" for share in shares)

    def processor(row):
        values = [row.get("processor_ns_a_byte", {}).get(name) for name in ("tern", "gloo")]
        return " / ".join("-" if value is None else f"{value:.2f}" for value in values)

    rows = "\n".join(
        f"| {row['nodes']} | {row['link']} | `{row['kind']}` | "
        f"{NAMES.get(row['bytes'], row['bytes'])} | "
        + " | ".join(cell(row, name) for name in ["tern", *OTHERS])
        + (f" | {row['speed']:.2f}" if row["speed"] else " | -") + f" | {again(row)} | {processor(row)} |"
        for row in line["rows"])
    stops = ""
    if line["mpi_stops"]:
        stops = (f" Open MPI stood still for a minute, or did not begin, {line['mpi_stops']} times in "
                 f"{line['parts']} parts, which were measured again.")
    several = len(line["seeds"]) > 1
    of_seeds = ("the median of the seeds and half of what lies between the smallest and the largest"
                if several else "of one seed")
    return (f"Commit {line['commit']}: {line['date']}, {line['processor']}, {line['cores']} cores, "
            f"{'real-time' if line['real_time'] else 'ordinary'} class, {'seeds' if several else 'seed'} "
            f"{', '.join(map(str, line['seeds']))}, `{line['command']}`, "
            f"{line['minutes_taken']:.0f} minutes. Times in microseconds, {of_seeds}; `ping_pong` is "
            "a send and a recv in both directions. Speed is the time of the faster of the two others by "
            f"Tern's. Sent again is the share of TCP segments, in percent, of Tern and of Gloo. "
            "Processor is the time in ns that all processes of a node use for each byte of the "
            f"operation, of Tern with its daemon and of Gloo.{stops}\n\n"
            "| nodes | link | operation | bytes in all | Tern | Gloo | Open MPI | speed | sent again "
            "| processor |\n|---:|---|---|---:|---:|---:|---:|---:|---:|---:|\n" + rows)


def command_words(options):
    words = f"--nodes {' '.join(map(str, options.nodes))} --links {' '.join(options.links)}"
    if options.sizes != SIZES:
        words += f" --sizes {' '.join(options.sizes)}"
    if options.kinds != KINDS:
        words += f" --kinds {' '.join(options.kinds)}"
    if options.seeds != SEEDS:
        words += f" --seeds {' '.join(map(str, options.seeds))}"
    words += f" --minutes {options.minutes:g}"
    words += " --back-to-back" if options.back_to_back else ""
    words += "".join(f" --daemon-option={word}" for word in options.daemon_option)
    return "tools/bench_collectives.py " + words + ("" if options.mpi else " --no-mpi")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--links", nargs="+", choices=list(LINKS),
                        default=["1gbit", "10gbit", "unshaped"])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="of all elements together")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--minutes", type=float, default=40, help="for all of it")
    parser.add_argument("--no-mpi", dest="mpi", action="store_false",
                        help="Tern and Gloo alone, where Open MPI is not installed")
    parser.add_argument("--daemon-option", action="append", default=[],
                        help="a word of every daemon's command line, as --daemon-option=--verify")
    parser.add_argument("--back-to-back", action="store_true",
                        help="do not wait until a shaped link's bucket is full again")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false",
                        help="do not use the kernel's real-time class")
    parser.add_argument("--write", nargs="?", const="collectives", metavar="SECTION")
    options = parser.parse_args()
    real_time = take_real_time(options)
    try:
        with tempfile.TemporaryDirectory() as logs:
            found = measure_all(options, pathlib.Path(logs))
    except NodesError as error:
        sys.exit(f"bench_collectives.py: {error}")
    line = {"date": time.strftime("%Y-%m-%d"), "commit": commit_name(),
            "processor": processor_name(), "cores": os.cpu_count(), "real_time": real_time,
            "seeds": options.seeds, "minutes_taken": sum(part["minutes"] for part in found),
            "parts": len(found), "mpi_stops": sum(part["stops"] for part in found),
            "command": command_words(options),
            "rows": list(compared([row for part in found for row in part["rows"]]))}
    print(table(line))
    if options.write:
        with HISTORY.open("a", encoding="utf-8") as history:
            history.write(json.dumps(line) + "\n")
        page_section.replace_section(PAGE, options.write, table(line))


if __name__ == "__main__":
    main()
