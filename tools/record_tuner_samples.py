#!/usr/bin/python3
"""Records what the simulator of the tuner replays: writes bench/data/tuner_samples.json.

Trains the MNIST perceptron and measures every candidate on its gradients, then takes the time of
all-reduces by each candidate between two daemons on shaped links.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import bench
from nodes import Nodes, NodesError
from origin import processor_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
TENSOR = "layer1.weight"
STEPS = "100-107,700-707"
MIB = 1 << 20
# At 100 Mbit/s a raw operation of 96 MiB takes eight seconds.
ROUNDS = {("100mbit", 96 * MIB): 2}
LINKS = ["100mbit", "1gbit", "10gbit"]
SIZES = [4 * MIB, 96 * MIB]


def record_codecs(options, folder):
    subprocess.run([options.programs / "train_mnist", "--local", "--steps", "708", "--batch", "128",
                    "--record", folder, "--record-steps", STEPS], check=True)
    files = sorted(folder.glob(f"grad_{TENSOR}_step*.npy"),
                   key=lambda path: int(path.stem.rsplit("step", 1)[1]))
    subprocess.run([options.programs / "tern-bench", "tuner-samples", "--input", *files,
                    "--out", options.out], check=True)
    return files


def record_ops(options, gradient, recipes):
    """Medians of whole operations. All rounds go through all recipes, so that what else the machine
    does meets all of them."""
    nodes = Nodes("tern-record", options.programs, options.work)
    if not nodes.network:
        nodes.close()
        raise NodesError(f"no network namespaces ({nodes.why_no_network}), so no shaped links")
    ops = []
    try:
        for name in LINKS:
            nodes.network.shape(bench.LINKS[name])
            for size in SIZES:
                rounds = ROUNDS.get((name, size), 9)
                daemons = nodes.start_daemons()
                rows = bench.run_ranks(nodes, f"record-{name}-{size}", lambda _, size=size, rounds=rounds: [
                    "--bytes", size, "--input", gradient, "--min-rounds", rounds,
                    "--max-rounds", rounds, "--settle", 2, "--recipe", *recipes])
                nodes.stop(daemons)
                # Rows have canonical texts; their order is that of the options.
                for recipe, row in zip(recipes, rows, strict=True):
                    ops.append({"recipe": recipe, "bytes": row["bytes"],
                                "rate": 125e6 * bench.rate_gbit(bench.LINKS[name]),
                                "ns": round(1e3 * row["median_us"])})
                    print(name, ops[-1], flush=True)
    finally:
        nodes.close()
    return ops


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/tuner-samples")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/data/tuner_samples.json")
    options = parser.parse_args()
    gradients = options.work / "gradients"
    gradients.mkdir(parents=True, exist_ok=True)
    try:
        files = record_codecs(options, gradients)
        result = json.loads(options.out.read_text(encoding="utf-8"))
        recipes = [one["recipe"] for one in result["candidates"]]
        result["ops"] = record_ops(options, files[-1], recipes)
    except (OSError, subprocess.CalledProcessError, NodesError) as error:
        print(f"record_tuner_samples: {error}", file=sys.stderr)
        return 1
    result["made"] = {"by": "tools/record_tuner_samples.py", "processor": processor_name(),
                      "cores": os.cpu_count(), "tensor": f"{TENSOR} of train_mnist",
                      "steps": STEPS}
    options.out.write_text(compact(result), encoding="utf-8")
    return 0


def compact(result):
    """JSON with a sample or an operation on a line."""
    def rows(values, indent):
        return ("[\n" + ",\n".join(" " * indent + json.dumps(value) for value in values) +
                "\n" + " " * (indent - 1) + "]")
    candidates = ",\n".join(
        f'  {{"recipe": {json.dumps(one["recipe"])}, "lossless": {json.dumps(one["lossless"])},\n'
        f'   "samples": {rows(one["samples"], 4)}}}' for one in result["candidates"])
    return (f'{{\n "made": {json.dumps(result["made"])},\n'
            f' "chunk_bytes": {result["chunk_bytes"]}, "elements": {result["elements"]},\n'
            f' "lane": {json.dumps(result["lane"])},\n "candidates": [\n{candidates}],\n'
            f' "ops": {rows(result["ops"], 2)}\n}}\n')


if __name__ == "__main__":
    sys.exit(main())
