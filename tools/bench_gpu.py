#!/usr/bin/env python3
"""Measures what Tern does on this machine's GPU: each kernel as a share of the bandwidth of a copy,
and steps of a PyTorch training whose gradients are encoded on the GPU.

    bench_gpu.py PROGRAMS --out FILE [--seconds 10] [--seeds 1 2 3] [--commit NAME]
    bench_gpu.py --record FILE

PROGRAMS is a folder with ternd, ternctl and tern-bench, with libtern.so.1 and libtern_cuda.so.1 in lib
beside it; PYTHONPATH has the package, and the interpreter PyTorch. The first line writes FILE. The
second, where the repository is, writes the tables of docs/gpu.md from it, and a line of
bench/history/gpu.jsonl. Two daemons and two ranks share the machine and its GPU, over the loopback
interface. Each seed is a start of its own.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from bench import ROOT
from nodes import Nodes, NodesError
from origin import commit_name, processor_name
from page_section import replace_section

PAGE = ROOT / "docs/gpu.md"
HISTORY = ROOT / "bench/history/gpu.jsonl"
WORKER = ROOT / "bench/torch_gpu_step.py"
PORT = 29511
LANES = "4"


def kernels(options, folder):
    """What tern-bench says of the kernels."""
    found = pathlib.Path(folder, "kernels.json")
    words = [options.programs / "tern-bench", "kernels", "--json", found, "--chunk-kib", "64", "128"]
    if options.image:
        words += ["--image", options.image]
    subprocess.run(words, check=True, stdout=sys.stderr)
    return json.loads(found.read_text())


def steps(options, folder, seed):
    """What rank 0 has printed."""
    nodes = Nodes("bench-gpu", options.programs, folder, loopback=True,
                  daemon_options=["--chunk-bytes", "64KiB", "--lanes", LANES])
    try:
        nodes.start_daemons()
        ranks = {f"rank{rank}": nodes.start(rank, f"rank{rank}", [
            "env", f"TERN_SOCKET={nodes.socket(rank)}", f"TERN_ARENA_BYTES={4 << 30}",
            "OMP_NUM_THREADS=4", sys.executable, WORKER,
            "--rank", rank, "--address", f"{nodes.address(0)}:{PORT}", "--seconds", options.seconds,
            "--seed", seed]) for rank in range(2)}
        return json.loads(nodes.outputs_of(ranks)["rank0"])
    finally:
        nodes.close()


def measure(options):
    os.environ["TERN_PROGRAMS"] = str(options.programs)
    os.environ["TERN_LIBRARY"] = str(options.programs.parent / "lib/libtern.so.1")
    record = {"commit": options.commit or commit_name(), "date": time.strftime("%Y-%m-%d"),
              "machine": processor_name(), "cores": os.cpu_count(), "seeds": options.seeds,
              "seconds": options.seconds}
    with tempfile.TemporaryDirectory(prefix="gpu-logs-") as folder:
        record["kernels"] = kernels(options, folder)
        record["steps"] = [steps(options, folder, seed) for seed in options.seeds]
    options.out.write_text(json.dumps(record) + "\n")


def kernel_table(record):
    """Each kernel's share of a copy by the size of chunks."""
    rows = {}
    for row in record["kernels"]["rows"]:
        key = row["kernel"], row["recipe"], row["blocks"]
        rows.setdefault(key, {})[row["chunk_kib"]] = row
    lines = ["| kernel | recipe | blocks | bytes an element | 64 KiB | 128 KiB | 256 KiB | design |",
             "|---|---|---:|---:|---:|---:|---:|---:|"]
    for (kernel, recipe, blocks), by_size in rows.items():
        any_size = next(iter(by_size.values()))
        cells = [f"{by_size[size]['copy_percent']:.0f} %" if size in by_size else ""
                 for size in (64, 128, 256)]
        target = any_size.get("target_percent")
        lines.append(f"| `{kernel}` | `{recipe}` | {blocks} | {any_size['bytes_per_element']:.2f} | "
                     + " | ".join(cells) + f" | {f'{target} %' if target else ''} |")
    copy = record["kernels"]
    lines += ["", f"Commit {record['commit']}, {record['date']}, {copy['device']}, a copy of "
              f"{copy['mib']} MiB {copy['copy_gb_per_s']['middle']:.0f} GB/s read and written, medians of "
              f"{copy['rounds']} launches, seed {copy['seed']}, by `tools/bench_gpu.py`."]
    return "\n".join(lines)


def step_table(record):
    """Medians of the seeds' medians, with the least and the most."""
    def over_seeds(of_seed):
        found = sorted(of_seed(each) for each in record["steps"])
        return statistics.median(found), found[0], found[-1]

    def median(each, name):
        return 1000 * statistics.median(each["seconds"][name])

    lines = ["| gradients | step, ms | more than one without any, ms |", "|---|---:|---:|"]
    names = sorted(record["steps"][0]["seconds"],
                   key=lambda name: median(record["steps"][0], name))
    for name in names:
        whole = over_seeds(lambda each, name=name: median(each, name))
        more = over_seeds(lambda each, name=name: median(each, name) - median(each, "alone"))
        lines.append("| " + " | ".join([name, *(f"{m:.1f} ({low:.1f} to {high:.1f})"
                                                for m, low, high in (whole, more))]) + " |")
    first = record["steps"][0]
    same = all(all(each["same_averages"].values()) for each in record["steps"])
    lines += ["", f"{first['weights'] / 1e6:.0f} MB of f32 weights, two ranks and two daemons of {LANES} lanes on one "
              f"machine and one GPU, loopback. Commit {record['commit']}, {record['date']}, "
              f"{first['gpu']}, {record['machine']} with {record['cores']} cores, PyTorch "
              f"{first['torch']}, seeds {', '.join(map(str, record['seeds']))}, {record['seconds']:g} s "
              "each, by `tools/bench_gpu.py`. The averages of GPU and copies are "
              + ("the same, bit for bit." if same else "NOT the same.")]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="?", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--image", help="of the kernels, if not the build's")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--commit", help="of the programs, where there is no git")
    parser.add_argument("--record", type=pathlib.Path)
    options = parser.parse_args()
    if options.record is not None:
        record = json.loads(options.record.read_text())
        replace_section(PAGE, "kernels", kernel_table(record))
        replace_section(PAGE, "steps", step_table(record))
        with HISTORY.open("a") as history:
            history.write(json.dumps(record) + "\n")
        return
    if options.programs is None or options.out is None:
        parser.error("give PROGRAMS and --out, or --record")
    try:
        measure(options)
    except (NodesError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
