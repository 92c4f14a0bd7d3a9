#!/usr/bin/env python3
"""Times a training step of PyTorch under gloo and under Tern, in turns, on two nodes that are
network namespaces joined by shaped links.

    bench_torch.py PROGRAMS [--rates 100mbit 1gbit 10gbit] [--seconds 20] [--seeds 1 2 3] [--record]

PROGRAMS is a folder with ternd and ternctl, with libtern.so in lib beside it; PYTHONPATH has the
package. Run it by an interpreter that has PyTorch, as root. --record writes the table of
docs/torch.md and bench/history/torch_speed.json. Each seed is a start of its own: daemons, ranks
and weights. A step's time is that of the slower rank, and a figure is the median of the seeds'
medians, with the least and the most. Communication is what a step takes beyond one without any.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch

from bench import ROOT
from nodes import Link, Nodes, NodesError
from origin import commit_name, processor_name
from page_section import replace_section

PAGE = ROOT / "docs/torch.md"
HISTORY = ROOT / "bench/history/torch_speed.json"
WORKER = ROOT / "bench/torch_step.py"
PORT = 29500


def run(options, rate, seed, *words):
    """What rank 0 has printed."""
    with tempfile.TemporaryDirectory(prefix="torch-logs-") as folder:
        nodes = Nodes("bench-torch", options.programs, folder, link=Link(rate))
        if nodes.network is None:
            nodes.close()
            raise NodesError(f"there are no namespaces: {nodes.why_no_network}")
        try:
            nodes.start_daemons()
            ranks = {f"rank{rank}": nodes.start(rank, f"rank{rank}", [
                "env", f"TERN_SOCKET={nodes.socket(rank)}", "GLOO_SOCKET_IFNAME=tern0",
                "OMP_NUM_THREADS=1", sys.executable, WORKER, "--rank", rank, "--address",
                f"{nodes.address(0)}:{PORT}", "--seconds", options.seconds, "--seed", seed, *words])
                for rank in range(2)}
            return json.loads(nodes.outputs_of(ranks)["rank0"])
        finally:
            nodes.close()


def times(options, rate):
    """Medians of all contestants at a rate: (seconds of the median seed, all seeds)."""
    by_seed = []
    for seed in options.seeds:
        found = run(options, rate, seed)
        by_seed.append({name: statistics.median(each) for name, each in found["seconds"].items()})
        print(f"{rate}, seed {seed}: " + ", ".join(
            f"{name} {1000 * each:.1f} ms" for name, each in by_seed[-1].items()), flush=True)
    return {"rate": rate, "weights": found["weights"], "by_seed": by_seed}


def over_seeds(result, function):
    """Median, least and most."""
    found = sorted(map(function, result["by_seed"]))
    return statistics.median(found), found[0], found[-1]


def cell(triple, digits=2):
    return f"{triple[0]:.{digits}f} ({triple[1]:.{digits}f} to {triple[2]:.{digits}f})"


def table(record):
    lines = ["| link | gloo, ms | Tern over gloo | FSDP2: Tern over gloo | compressed, ms "
             "| communication, gloo over compressed |", "|---|---:|---:|---:|---:|---:|"]
    for result in record["results"]:
        lossy = next(name for name in result["by_seed"][0] if name.startswith("tern, ")
                     and "FSDP2" not in name)
        lines.append("| " + " | ".join([
            result["rate"],
            cell(over_seeds(result, lambda each: 1000 * each["gloo"]), 1),
            cell(over_seeds(result, lambda each: each["tern"] / each["gloo"])),
            cell(over_seeds(result, lambda each: each["tern, FSDP2"] / each["gloo, FSDP2"])),
            cell(over_seeds(result, lambda each: 1000 * each[lossy]), 1),
            cell(over_seeds(result, lambda each: (each["gloo"] - each["alone"]) /
                            max(each[lossy] - each["alone"], 1e-4)), 1)]) + " |")
    if record["accuracy"]:
        lines += ["", "| MNIST, three epochs | " + " | ".join(
            f"seed {seed}" for seed in record["seeds"]) + " |",
            "|---|" + "---:|" * len(record["seeds"])]
        for name in record["accuracy"][0]:
            lines.append(f"| {name} | " + " | ".join(
                f"{100 * each[name]:.1f} %" for each in record["accuracy"]) + " |")
    lines += ["", f"Commit {record['commit']}, PyTorch {record['torch']}, {record['date']}, "
              f"{record['machine']} with {record['cores']} cores, load of other work "
              f"{record['load']}, seeds {', '.join(map(str, record['seeds']))}, {record['seconds']:g} s each."]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--rates", nargs="+", default=["100mbit", "1gbit", "10gbit"])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--no-accuracy", action="store_true")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    os.environ["TERN_PROGRAMS"] = str(options.programs)
    os.environ["TERN_LIBRARY"] = str(options.programs.parent / "lib/libtern.so.1")
    record = {"commit": commit_name(), "date": time.strftime("%Y-%m-%d"),
              "torch": torch.__version__, "machine": processor_name(), "cores": os.cpu_count(),
              "load": round(os.getloadavg()[0], 1), "seeds": options.seeds, "seconds": options.seconds, "accuracy": []}
    try:
        record["results"] = [times(options, rate) for rate in options.rates]
        if not options.no_accuracy:
            record["accuracy"] = [run(options, None, seed, "--accuracy")["accuracy"]
                                  for seed in options.seeds]
    except NodesError as error:
        sys.exit(str(error))
    print(table(record))
    if options.record:
        HISTORY.write_text(json.dumps(record, indent=1) + "\n")
        replace_section(PAGE, "speed", table(record))


if __name__ == "__main__":
    main()
