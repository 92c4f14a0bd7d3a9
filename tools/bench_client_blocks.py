#!/usr/bin/python3
"""What blocks of the ranks bring: the daemons' processor time for an all-reduce, and steps of a training.

    bench_client_blocks.py [--seeds N...] [--bytes SIZE] [--recipes RECIPE...] [--seconds S] [--steps N]
                           [--record]

Two nodes, unshaped. For each seed and recipe an all-reduce runs with elements and with client_blocks,
in an order that the seed draws; the daemons' processor time is that of both, by operation, from
/proc, over all operations since the ranks joined. Then train_mnist runs with elements and with
blocks, one rank on each node. The figures are medians over the seeds; a ratio is the median of the
seeds' ratios. --record puts the tables into docs/benchmarks.md and adds a line to
bench/history/client_blocks.jsonl. What the same would bring where GPUs encode is computed from these
figures, and goes to docs/gpu.md.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

import page_section
from bench import ROOT, run_ranks, take_real_time
from nodes import Nodes, NodesError
from origin import commit_name, processor_name
from training import train

PAGE = ROOT / "docs/benchmarks.md"
GPU_PAGE = ROOT / "docs/gpu.md"
HISTORY = ROOT / "bench/history/client_blocks.jsonl"
RECIPES = ["3lc:s=1", "ef(int:bits=8)", "ef(int:bits=4)", "bf16"]
TRAINED = ["3lc:s=1"]
GAIN_LINKS = [10, 25, 100, 400]  # Gbit/s
GAIN_LANES = [1, 8]
WARM_UP, SETTLE = 2, 24  # operations of tern-bench that it does not time
SIDES = ["arena", "blocks"]


def processor_seconds(pid):
    """What all threads of the process have used, in user and kernel."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(options, logs, part):
    """One recipe's operations on one side: times, and the daemons' processor time by operation."""
    seed, recipe, side = part
    nodes = Nodes("client-blocks", options.programs, logs, count=2)
    try:
        pids = [daemon.pid for daemon in nodes.start_daemons()]
        before = sum(map(processor_seconds, pids))
        row, = run_ranks(nodes, "blocks", lambda rank: [
            "--bytes", options.bytes, "--recipe", recipe, "--memory", side, "--seed", seed,
            "--warm-up", WARM_UP, "--settle", SETTLE, "--seconds", options.seconds,
            "--max-rounds", 100_000])
        used = sum(map(processor_seconds, pids)) - before
    finally:
        nodes.close()
    # tern-bench settles only what has no bound for its errors.
    settled = 0 if recipe in ("raw", "bf16") else SETTLE
    operations = row["rounds"] + WARM_UP + (SETTLE if side == "blocks" else settled)
    return {"seed": seed, "recipe": recipe, "side": side, "median_us": row["median_us"],
            "daemon_us": 1e6 * used / operations, "bytes": row["bytes"],
            "sent_bytes": row["bytes_sent_per_op"]}


def train_once(options, logs, part):
    seed, recipe, side = part
    nodes = Nodes("client-blocks", options.programs, logs, count=2)
    try:
        nodes.start_daemons()
        more = ["--seed", seed] + (["--client-blocks"] if side == "blocks" else [])
        reports, _ = train(nodes, 0, recipe, options.steps, more, ranks_per_node=1)
    finally:
        nodes.close()
    seconds = [statistics.median(report["step_seconds"]) for report in reports]
    return {"seed": seed, "recipe": recipe, "side": side, "step_us": 1e6 * max(seconds),
            "checksums": [report["weights_checksum"] for report in reports]}


def compared(rows, key):
    """{recipe: (elements, blocks, blocks / elements)}, medians over the seeds."""
    table = {}
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        sides = [{row["seed"]: row[key] for row in rows
                  if row["recipe"] == recipe and row["side"] == side} for side in SIDES]
        ratios = [sides[1][seed] / sides[0][seed] for seed in sides[0]]
        table[recipe] = (*(statistics.median(side.values()) for side in sides),
                         statistics.median(ratios))
    return table


def same_weights(rows):
    """How many pairs of trainings have the same bits, and how many there are."""
    pairs = {}
    for row in rows:
        pairs.setdefault((row["seed"], row["recipe"]), set()).update(row["checksums"])
    return sum(len(checksums) == 1 for checksums in pairs.values()), len(pairs)


def tables(line):
    about = (f"Commit {line['commit']}: {line['date']}, {line['processor']}, {line['cores']} cores, "
             f"{'real-time' if line['real_time'] else 'ordinary'} class, seeds "
             f"{', '.join(map(str, line['seeds']))}, `{line['command']}`.")
    daemon, wall = (compared(line["operations"], key) for key in ("daemon_us", "median_us"))
    text = [f"{about} An all-reduce of {line['operations'][0]['bytes'] >> 20} MiB between two nodes, "
            "unshaped. Processor time is that of both daemons.", "",
            "| recipe | daemons, elements | daemons, blocks | less | operation, elements "
            "| operation, blocks | ratio |", "|---|---:|---:|---:|---:|---:|---:|"]
    for recipe, (elements, blocks, ratio) in daemon.items():
        before, now, times = wall[recipe]
        text.append(f"| `{recipe}` | {elements:,.0f} us | {blocks:,.0f} us | {1 - ratio:.0%} "
                    f"| {before:,.0f} us | {now:,.0f} us | {times:.2f} |")
    same, pairs = same_weights(line["trainings"])
    text += ["", f"{line['steps']} steps of `train_mnist`, one rank on each node. In {same} of {pairs} "
             "pairs the weights have the same bits.", "",
             "| recipe | step, elements | step, blocks | ratio |", "|---|---:|---:|---:|"]
    for recipe, (elements, blocks, ratio) in compared(line["trainings"], "step_us").items():
        text.append(f"| `{recipe}` | {elements:,.0f} us | {blocks:,.0f} us | {ratio:.2f} |")
    return "\n".join(text)


def gains(line):
    """What blocks made on GPUs would bring between two nodes, computed from ranks that encode on processors.
    Raw is bound by the wire alone, and a recipe by its bytes on the wire or by a daemon's processor."""
    rows = [row for row in line["operations"] if row["side"] == "blocks"]
    text = [f"Commit {line['commit']}: {line['date']}, {line['processor']}, by `{line['command']}`.", "",
            "| recipe | bytes on the wire | daemon's processor | "
            + " | ".join(f"{link} Gbit/s" for link in GAIN_LINKS) + " |",
            "|---|---:|---:|" + "---:|" * len(GAIN_LINKS)]
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        of_recipe = [row for row in rows if row["recipe"] == recipe]
        size = of_recipe[0]["bytes"]
        sent = statistics.median(row["sent_bytes"] for row in of_recipe)
        processor_us = statistics.median(row["daemon_us"] for row in of_recipe) / 2

        def gain(link, lanes):
            wire_us = 8e-3 * size / link
            return wire_us / max(wire_us * sent / size, processor_us / lanes)

        cells = " | ".join(" / ".join(f"{gain(link, lanes):.1f}" for lanes in GAIN_LANES)
                           for link in GAIN_LINKS)
        text.append(f"| `{recipe}` | {sent / size:.3f} of raw | {processor_us:,.0f} us | {cells} |")
    return "\n".join(text)


def in_drawn_order(seed, recipes):
    parts = [(seed, recipe, side) for recipe in recipes for side in SIDES]
    random.Random(seed).shuffle(parts)
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--bytes", default="16MiB")
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--seconds", type=float, default=3, help="for each recipe and side")
    parser.add_argument("--steps", type=int, default=300, help="of each training")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false",
                        help="do not use the kernel's real-time class")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    real_time = take_real_time(options)
    operations, trainings = [], []
    try:
        with tempfile.TemporaryDirectory() as logs:
            for seed in options.seeds:
                for part in in_drawn_order(seed, options.recipes):
                    print(*part, file=sys.stderr)
                    operations.append(measure(options, pathlib.Path(logs), part))
                for part in in_drawn_order(seed, TRAINED):
                    trainings.append(train_once(options, pathlib.Path(logs), part))
    except NodesError as error:
        sys.exit(f"bench_client_blocks.py: {error}")
    words = ["tools/bench_client_blocks.py"]
    for name in ["seeds", "bytes", "recipes", "seconds", "steps"]:
        value = getattr(options, name)
        if value != parser.get_default(name):
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    line = {"date": time.strftime("%Y-%m-%d"), "commit": commit_name(),
            "processor": processor_name(), "cores": os.cpu_count(), "real_time": real_time,
            "seeds": options.seeds, "steps": options.steps, "command": " ".join(words),
            "operations": operations, "trainings": trainings}
    print(tables(line))
    if options.record:
        with HISTORY.open("a", encoding="utf-8") as history:
            history.write(json.dumps(line) + "\n")
        page_section.replace_section(PAGE, "client-blocks", tables(line))
        page_section.replace_section(GPU_PAGE, "gain", gains(line))


if __name__ == "__main__":
    main()
