#!/usr/bin/python3
"""How long the MNIST example trains until it reaches an accuracy, on ten nodes, with every recipe of
the tuner's and with `auto` at every level.

The steps that a recipe needs do not depend on the link: they are counted once for each seed, on a fast
one. The time of a step is measured on each link. For a static recipe the two are multiplied; `auto` is run
in full, because what it chooses depends on the link, and for some hundred steps on the slowest.
Runs are kept one by one in build/tuner: who is interrupted goes on. Writes build/tuner/accuracy.json and
the section time-to-accuracy of docs/tuner.md. Status 1 if `auto` at the level balanced loses more than
half a point.
"""

import argparse
import io
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

from kept_runs import KeptRuns
from nodes import Link, Nodes, NodesError
from origin import commit_name, processor_name
from page_section import replace_section
from training import DIVERGED, MAX_ACCURACY_LOSS, summarize, train

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINKS = {"fast": Link("10gbit", burst="4mb"), "10mbit": Link("10mbit", burst="64kb"),
         "100mbit": Link("100mbit"), "1gbit": Link("1gbit")}
STATIC = ["raw", "lossless", "ef(bf16)", "ef(int:bits=8)", "ef(int:bits=4)", "3lc:s=1", "3lc:s=1.75"]
LEVELS = ["lossless", "conservative", "balanced", "aggressive"]
SLOWEST = "10mbit"  # where auto does not train to the end


class Trainer:
    """Trains once with daemons of its own, or finds what it has trained before."""

    def __init__(self, options, logs):
        self.options = options
        self.logs = logs
        self.commit = commit_name()
        self.kept = KeptRuns(options.out / "training-runs.jsonl")

    def run(self, link, recipe, steps, seed, level=None):
        """{"step_ms", "test_accuracy", "accuracy": [[seconds, share], ...]}, or {"diverged"}, the step at
        which the loss was no number any more."""
        key = {"commit": self.commit, "nodes": self.options.nodes, "link": link, "recipe": recipe,
               "level": level, "steps": steps, "seed": seed, "evaluate_every": self.options.evaluate_every}
        run = self.kept.find(key)
        if run is None:
            run = self._train(link, recipe, steps, seed, level)
            self.kept.keep(key, run)
        print(f"seed {seed}, {link}, {recipe} {level or ''}: "
              + (f"diverges at step {run['diverged']}" if "diverged" in run else
                 f"{100 * run['test_accuracy']:.2f} %, {run['step_ms']:.1f} ms a step"), flush=True)
        return run

    def _train(self, link, recipe, steps, seed, level):
        settings = f'[tuner]\npolicy = "* {level}"\n' if level else ""
        nodes = Nodes("tern-time-to-accuracy", self.options.programs, self.logs, link=LINKS[link],
                      count=self.options.nodes, settings=settings)
        try:
            nodes.start_daemons()
            reports, link_bytes = train(
                nodes, 1, recipe, steps, ["--seed", seed, "--evaluate-every", self.options.evaluate_every],
                stream=io.StringIO(), ranks_per_node=1, seconds=self.options.patience)
            row = summarize(recipe, reports, link_bytes, ranks_per_node=1)
            return {name: row[name] for name in ("step_ms", "test_accuracy", "accuracy")}
        except NodesError as error:
            diverged = DIVERGED.search(str(error))
            if not diverged:
                raise
            return {"diverged": int(diverged[1])}
        finally:
            nodes.close()


def steps_to(run, accuracy, evaluate_every):
    """Of the first evaluation that reaches it; None if none does."""
    for index, (_, reached) in enumerate(run.get("accuracy", [])):
        if reached >= accuracy:
            return (index + 1) * evaluate_every
    return None


def seconds_to(run, accuracy):
    return next((seconds for seconds, reached in run.get("accuracy", []) if reached >= accuracy), None)


def static_entry(learning, timed, target, evaluate_every):
    """Of one seed: the run that counts the steps, and the one that takes the time of a step."""
    diverged = learning.get("diverged") or timed.get("diverged")
    if diverged:
        return {"diverged": diverged}
    needed = steps_to(learning, target, evaluate_every)
    return {"step_ms": timed["step_ms"], "test_accuracy": learning["test_accuracy"], "trained": True,
            "seconds": needed * timed["step_ms"] / 1e3 if needed else None}


def auto_entry(run, target, is_whole):
    if "diverged" in run:
        return run
    return {"step_ms": run["step_ms"], "test_accuracy": run["test_accuracy"], "trained": is_whole,
            "seconds": seconds_to(run, target) if is_whole else None}


def measure(options, trainer):
    """The entries of each link and recipe, in the order of the seeds."""
    links = {name: {label: [] for label in [*STATIC, *(f"auto {level}" for level in options.levels)]}
             for name in options.links}
    targets = []
    for seed in options.seeds:
        learning = {recipe: trainer.run("fast", recipe, options.steps, seed) for recipe in STATIC}
        if "diverged" in learning["raw"]:
            raise NodesError("raw itself diverges: there is nothing to compare with")
        target = learning["raw"]["test_accuracy"] - MAX_ACCURACY_LOSS
        targets.append(target)
        for name, rows in links.items():
            for recipe in STATIC:
                rows[recipe].append(static_entry(
                    learning[recipe], trainer.run(name, recipe, options.step_count, seed), target,
                    options.evaluate_every))
            for level in options.levels:
                is_whole = name != SLOWEST
                run = trainer.run(name, "auto", options.steps if is_whole else options.short_steps, seed, level)
                rows[f"auto {level}"].append(auto_entry(run, target, is_whole))
    return {"commit": trainer.commit, "date": time.strftime("%Y-%m-%d"), "processor": processor_name(),
            "cores": os.cpu_count(), "nodes": options.nodes, "steps": options.steps,
            "step_count": options.step_count, "seeds": options.seeds, "targets": targets, "links": links}


def spread(values, form):
    """The median, and the least and the most of several."""
    middle = form.format(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({form.format(min(values))} to {form.format(max(values))})"


def cell(entries):
    diverged = sum("diverged" in entry for entry in entries)
    if diverged:
        return "diverges" if diverged == len(entries) else f"diverges ({diverged} of {len(entries)})"
    parts = []
    if all(entry["trained"] for entry in entries):
        reached = [entry["seconds"] for entry in entries if entry["seconds"] is not None]
        if reached:
            parts.append(f"{spread(reached, '{:.1f}')} s")
        if len(reached) < len(entries):
            parts.append(f"not reached by {len(entries) - len(reached)} of {len(entries)}")
        parts.append(f"{100 * statistics.fmean(entry['test_accuracy'] for entry in entries):.2f} %")
    parts.append(f"{statistics.median(entry['step_ms'] for entry in entries):.1f} ms a step")
    return ", ".join(parts)


def section(result):
    names = list(result["links"])
    targets = ", ".join(f"{100 * target:.2f}" for target in result["targets"])
    lines = [f"Written by `tools/time_to_accuracy.py` at commit {result['commit']}, {result['date']}, on "
             f"{result['processor']} with {result['cores']} cores: {result['nodes']} nodes, one process each, on "
             f"this one machine. Seconds to half a point below what raw reaches with the same seed after "
             f"{result['steps']} steps (seeds {', '.join(map(str, result['seeds']))}: {targets} %), the median of "
             "the seeds with the least and the most; the mean accuracy at the end; the median time of a step. In "
             "static rows the steps are counted on a fast link, and multiplied by the time of a step over "
             f"{result['step_count']} steps. Rows of `auto` are whole trainings, and include the first operations, "
             "which are raw" + (f"; at {SLOWEST} they have a time of a step only." if SLOWEST in names else "."), "",
             "| recipe | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for label in result["links"][names[0]]:
        lines.append(f"| `{label}` | " + " | ".join(cell(result["links"][name][label]) for name in names) + " |")
    return "\n".join(lines) + "\n"


def loses(result):
    """Whether `auto` at the level balanced ends more than half a point below raw, on average or by diverging."""
    for rows in result["links"].values():
        entries = rows.get("auto balanced", [])
        if any("diverged" in entry for entry in entries):
            return True
        whole = [entry["test_accuracy"] - target for entry, target in zip(entries, result["targets"])
                 if entry["trained"]]
        if whole and statistics.fmean(whole) < -1e-9:
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--step-count", type=int, default=100, help="to measure the time of a step")
    parser.add_argument("--short-steps", type=int, default=300, help=f"of auto at {SLOWEST}")
    parser.add_argument("--evaluate-every", type=int, default=50)
    parser.add_argument("--links", nargs="+", choices=[name for name in LINKS if name != "fast"],
                        default=["100mbit", "1gbit"])
    parser.add_argument("--levels", nargs="*", choices=LEVELS, default=LEVELS)
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds for a run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--no-record", dest="record", action="store_false")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/tuner")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="time-to-accuracy-logs-") as logs:
            result = measure(options, Trainer(options, pathlib.Path(logs)))
    except NodesError as error:
        print(f"time_to_accuracy: {error}", file=sys.stderr)
        return 1
    (options.out / "accuracy.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.record:
        replace_section(ROOT / "docs/tuner.md", "time-to-accuracy", section(result))
    if loses(result):
        print("auto at the level balanced loses more than half a point", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
