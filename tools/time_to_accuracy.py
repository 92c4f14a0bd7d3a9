#!/usr/bin/python3
"""How long the MNIST example trains until it reaches an accuracy, on ten nodes, with every recipe of
the tuner's and with `auto` at every level.

The steps that a recipe needs do not depend on the link: they are counted once, on a fast one. The time of
a step is measured on each link. For a static recipe the two are multiplied; `auto` is run in full on
the faster links, because what it chooses depends on them, and for some hundred steps on the slowest.
Writes build/tuner/accuracy.json and the section time-to-accuracy of docs/tuner.md.
"""

import argparse
import io
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

from nodes import Link, Nodes, NodesError
from page_section import replace_section
from training import DIVERGED, MAX_ACCURACY_LOSS, summarize, train

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINKS = {"10mbit": Link("10mbit", burst="64kb"), "100mbit": Link("100mbit"), "1gbit": Link("1gbit")}
FAST = Link("10gbit", burst="4mb")
STATIC = ["raw", "lossless", "ef(bf16)", "ef(int:bits=8)", "ef(int:bits=4)", "3lc:s=1", "3lc:s=1.75"]
LEVELS = ["lossless", "conservative", "balanced", "aggressive"]
WHOLE = ["100mbit", "1gbit"]  # where auto trains to the end


class Trainer:
    def __init__(self, options):
        self.options = options
        self.logs = options.out / "logs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)

    def run(self, link, recipe, steps, level=None):
        """A summary, or the step at which the loss was not finite any more."""
        settings = f'[tuner]\npolicy = "* {level}"\n' if level else ""
        nodes = Nodes("tern-time-to-accuracy", self.options.programs, self.logs, link=link,
                      count=self.options.nodes, settings=settings)
        try:
            nodes.start_daemons()
            reports, link_bytes = train(
                nodes, 1, recipe, steps,
                ["--seed", self.options.seed, "--evaluate-every", self.options.evaluate_every],
                stream=io.StringIO(), ranks_per_node=1, seconds=self.options.patience)
            return summarize(recipe, reports, link_bytes, ranks_per_node=1)
        except NodesError as error:
            diverged = DIVERGED.search(str(error))
            if not diverged:
                raise
            return {"diverged": int(diverged[1])}
        finally:
            nodes.close()


def steps_to(row, accuracy, evaluate_every):
    """Of the first evaluation that reaches it; None if none does."""
    for index, (_, reached) in enumerate(row.get("accuracy", [])):
        if reached >= accuracy:
            return (index + 1) * evaluate_every
    return None


def seconds_to(row, accuracy):
    for seconds, reached in row.get("accuracy", []):
        if reached >= accuracy:
            return seconds
    return None


def measure(options):
    trainer = Trainer(options)
    print("-- steps to the accuracy, once for every recipe", flush=True)
    learning = {}
    for recipe in STATIC:
        learning[recipe] = trainer.run(FAST, recipe, options.steps)
        print(f"{recipe:16} {text_of(learning[recipe])}", flush=True)
    target = learning["raw"]["test_accuracy"] - MAX_ACCURACY_LOSS
    result = {"nodes": options.nodes, "steps": options.steps, "seed": options.seed,
              "target": target, "learning": learning, "links": {}}
    for name in options.links:
        rows = {}
        for recipe in STATIC:
            step_ms = trainer.run(LINKS[name], recipe, options.step_count)["step_ms"]
            needed = steps_to(learning[recipe], target, options.evaluate_every)
            rows[recipe] = {"step_ms": step_ms, "diverged": learning[recipe].get("diverged"),
                            "seconds": needed * step_ms / 1e3 if needed else None}
        for level in options.levels:
            whole = name in WHOLE
            row = trainer.run(LINKS[name], "auto", options.steps if whole else options.short_steps,
                              level)
            rows[f"auto {level}"] = {
                "step_ms": row.get("step_ms"), "diverged": row.get("diverged"),
                "ratio": None, "test_accuracy": row.get("test_accuracy") if whole else None,
                "seconds": seconds_to(row, target) if whole else None}
        result["links"][name] = rows
        print(f"-- {name}, to {100 * target:.2f} %")
        for label, row in rows.items():
            print(f"{label:20} {cell(row)}", flush=True)
    return result


def text_of(row):
    if "diverged" in row:
        return f"diverges at step {row['diverged']}"
    return f"{100 * row['test_accuracy']:.2f} %, {row['step_ms']:.1f} ms a step"


def cell(row):
    if row is None:
        return ""
    if row.get("diverged"):
        return "diverges"
    seconds = f"{row['seconds']:.1f} s " if row.get("seconds") else ""
    accuracy = f", {100 * row['test_accuracy']:.2f} %" if row.get("test_accuracy") else ""
    return f"{seconds}({row['step_ms']:.1f} ms a step{accuracy})"


def markdown(result):
    names = [name for name in LINKS if name in result["links"]]
    lines = [f"Written by `tools/time_to_accuracy.py`: {result['nodes']} nodes, one process each, on one "
             f"machine of {os.cpu_count()} cores; seconds to {100 * result['target']:.2f} % (half a point below raw "
             f"after {result['steps']} steps, seed {result['seed']}).", "",
             "| recipe | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for label in result["links"][names[0]]:
        cells = [cell(result["links"][name].get(label)) for name in names]
        lines.append(f"| `{label}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--step-count", type=int, default=100, help="to measure the time of a step")
    parser.add_argument("--short-steps", type=int, default=300, help="of auto on the slowest link")
    parser.add_argument("--evaluate-every", type=int, default=50)
    parser.add_argument("--links", nargs="+", choices=list(LINKS), default=list(LINKS))
    parser.add_argument("--levels", nargs="*", choices=LEVELS, default=LEVELS)
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds for a run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-record", dest="record", action="store_false")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/tuner")
    options = parser.parse_args()
    try:
        result = measure(options)
    except (NodesError, subprocess.CalledProcessError) as error:
        print(f"time_to_accuracy: {error}", file=sys.stderr)
        return 1
    (options.out / "accuracy.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.record:
        replace_section(ROOT / "docs/tuner.md", "time-to-accuracy", markdown(result))
    balanced = [row["auto balanced"]["test_accuracy"] for row in result["links"].values()
                if row.get("auto balanced", {}).get("test_accuracy")]
    if balanced and statistics.fmean(balanced) < result["target"]:
        print("auto at the level balanced loses more than half a point", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
