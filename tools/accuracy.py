#!/usr/bin/python3
"""What every family of recipes does to a training: the example on MNIST, two nodes with one ternd and
two workers each, once for every recipe, at the example's learning rate and at a smaller one.

Writes build/accuracy/accuracy.json and the section between the markers accuracy:begin and accuracy:end
of docs/codecs.md. Exit status 1 if a family has no recipe within half a point of raw at the same
rate, at either rate.

Then the table of 3LC's paper for a parameter server on the ranks (accuracy_server.py): printed, to
build/accuracy/server.json, and between the markers server-accuracy:begin and :end of the page unless
an option makes it another table than that of ten workers. `--table` makes one of the two alone.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import sys
import time

import accuracy_server
from kept_runs import KeptRuns
from nodes import Link, Nodes, NodesError
from origin import commit_name, processor_name
from page_section import replace_section
from training import DIVERGED, MAX_ACCURACY_LOSS, RANKS_PER_NODE, STEPS, summarize, train

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = [1, 2, 3]
# The example's own, and one at which noise and delays of a step weigh less.
RATES = [0.1, 0.02]
# Wide enough that it does not decide how long this takes.
LINK = Link("10gbit", burst="4mb")
# On so many images the example measures the accuracy (kSplitTest of examples/train_mnist/mnist.h).
TEST_IMAGES = 1500

RAW = "raw"
FAMILIES = {
    "floats": ["bf16", "fp16", "ef(fp8:format=e4m3)", "ef(fp8:format=e5m2)", "ef(mxfp8)", "ef(mxfp4)"],
    "natural": ["none(natural)", "ef(natural)"],
    "bitmask": ["ef(bitmask:keep=3)", "ef(bitmask:keep=7)"],
    "integers": ["ef(int:bits=8)", "ef(int:bits=4)", "ef(int:bits=2)", "none(int:bits=4)",
                 "none(int:bits=4,round=stochastic)", "none(int:bits=2,round=stochastic)"],
    "qsgd": ["none(qsgd:levels=15)", "none(qsgd:levels=4)", "none(qsgd:levels=1,norm=2)"],
    "terngrad": ["none(terngrad)", "diana(terngrad)"],
    "onebit": ["ef(onebit)", "none(onebit)"],
    "3lc": ["3lc:s=1", "3lc:s=1.75", "none(3lc:s=1)"],
    "Lloyd": ["ef(lloyd:bits=4+huffman)", "ef(lloyd:bits=2)", "ef(lloyd:bits=1)"],
    "topk": ["ef(topk:p=0.1)", "ef(topk:p=0.01)", "none(topk:p=0.01)", "ef(topk:p=0.01+int:bits=8)"],
    "randk": ["none(randk:p=0.5)", "none(randk:p=0.1)", "none(randk:p=0.25+qsgd:levels=4+zrun)",
              "ef(randk:p=0.5)", "ef(randk:p=0.1)"],
    "blocksparse": ["none(blocksparse:p=0.5)", "none(blocksparse:p=0.25)", "ef(blocksparse:p=0.5)",
                    "ef(blocksparse:p=0.1)"],
    "DIANA": ["diana(natural)", "diana(qsgd:levels=4)", "diana(randk:p=0.5)", "diana(randk:p=0.25)",
              "diana(randk:p=0.25+qsgd:levels=4+zrun)", "diana(blocksparse:p=0.25)"],
    "EF21": ["ef21(int:bits=4)", "ef21(topk:p=0.1)", "ef21(topk:p=0.01)", "ef21(3lc:s=1)"],
    "entropy coders": ["ef(int:bits=4+huffman)", "ef(int:bits=4+zrun)", "ef(int:bits=4+gzip)",
                       "ef(int:bits=4+zstd)", "ef(int:bits=4+lz4)"],
    "lossless": ["none(lossless)", "none(xordelta)"],
}

# Why a recipe may lose more than half a point; the first that fits. These are suppositions by the
# name of the recipe: no run measures them.
REASONS = [
    (r"none\(qsgd.*norm=2", "unbiased, but its noise grows with the root of the chunk's length"),
    (r"none\((topk|3lc|onebit|lloyd)", "biased without memory: what a step leaves out is never sent"),
    (r"ef\((randk|blocksparse)",
     "a value waits 1/p steps on average; with momentum 0.9 it comes late and overshoots"),
    (r"ef21\(3lc", "3LC takes too little off the difference in a step for its shift to follow"),
    (r"ef21\(topk", "the shift follows by the share p a step, and is behind while the gradient turns"),
    (r"diana", "the shift removes the noise of what stays the same; a batch's gradient is new every step"),
    (r"none\((randk|blocksparse|qsgd|terngrad|int|natural)",
     "unbiased, but its noise is too much for this rate"),
    (r"3lc|onebit|lloyd:bits=1|ef\(", "what it owes comes late, and this rate does not wait"),
]


def reason(recipe):
    return next((text for pattern, text in REASONS if re.match(pattern, recipe)), "")


class Trainer:
    """Runs recipes on one pair of daemons. A run is {"seed", "accuracy", "wire_bytes_per_step"}, or
    {"seed", "diverged"}, at which step its loss was no number any more."""

    def __init__(self, nodes, options, kept):
        self.nodes = nodes
        self.options = options
        self.kept = kept
        self.commit = commit_name()
        self.runs = 0

    def once(self, recipe, rate, seed):
        self.runs += 1
        try:
            reports, link_bytes = train(self.nodes, self.runs, recipe, self.options.steps,
                                        ["--seed", seed, "--rate", rate],
                                        stream=io.StringIO())  # nobody reads so many bars
        except NodesError as error:
            diverged = DIVERGED.search(str(error))
            if not diverged:
                raise
            return {"seed": seed, "diverged": int(diverged[1])}
        row = summarize(recipe, reports, link_bytes)
        if not row["weights_agree"]:
            raise NodesError(f"{recipe}, rate {rate}, seed {seed}: the ranks' weights differ")
        return {"seed": seed, "accuracy": row["test_accuracy"],
                "wire_bytes_per_step": row["wire_bytes_per_step"]}

    def kept_or_once(self, recipe, rate, seed):
        key = {"commit": self.commit, "recipe": recipe, "rate": rate, "seed": seed,
               "steps": self.options.steps}
        run = self.kept.find(key)
        if run is None:
            run = self.once(recipe, rate, seed)
            self.kept.keep(key, run)
        return run

    def measure(self, recipe):
        """The runs of each rate, in the order of the seeds."""
        print(f"-- {recipe}", flush=True)
        rates = {str(rate): [self.kept_or_once(recipe, rate, seed) for seed in self.options.seeds]
                 for rate in RATES}
        print("   " + ", ".join(f"rate {rate}: {accuracy_text(runs)}" for rate, runs in rates.items()),
              flush=True)
        return {"recipe": recipe, "rates": rates}


def accuracy_text(runs):
    diverged = sum("diverged" in run for run in runs)
    if diverged:
        return "diverges" if diverged == len(runs) else f"diverges ({diverged} of {len(runs)})"
    return f"{100 * statistics.fmean(run['accuracy'] for run in runs):.2f}"


def points(runs, raws):
    """Each run's accuracy less that of raw with the same seed, in points; None if one diverged."""
    if any("diverged" in run for run in [*runs, *raws]):
        return None
    return [100 * (run["accuracy"] - raw["accuracy"]) for run, raw in zip(runs, raws)]


def is_near(mean_points):
    """No more than half a point below; half an image is no loss."""
    return mean_points > -100 * MAX_ACCURACY_LOSS - 1e-6


def within(runs, raws):
    differences = points(runs, raws)
    return differences is not None and is_near(statistics.fmean(differences))


@contextlib.contextmanager
def ignored_signals():
    """What is being cleaned up is not left half done."""
    before = {number: signal.signal(number, signal.SIG_IGN)
              for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_all(options, families):
    nodes = Nodes("tern-accuracy", options.programs, options.out / "logs", link=LINK)
    try:
        nodes.start_daemons()
        trainer = Trainer(nodes, options, KeptRuns(options.out / "runs.jsonl"))
        raw = trainer.measure(RAW)
        if any("diverged" in run for runs in raw["rates"].values() for run in runs):
            raise NodesError("raw itself diverges: there is nothing to compare with")
        rows = {family: [trainer.measure(recipe) for recipe in recipes]
                for family, recipes in families.items()}
    finally:
        with ignored_signals():
            nodes.close()
    return {"commit": trainer.commit, "date": time.strftime("%Y-%m-%d"), "processor": processor_name(),
            "cores": os.cpu_count(), "steps": options.steps, "seeds": options.seeds, "raw": raw,
            "families": rows}


def cell(runs, raws):
    differences = points(runs, raws)
    if differences is None:
        return accuracy_text(runs)
    half = accuracy_server.interval(differences)
    text = (f"{accuracy_text(runs)} ({statistics.fmean(differences):+.2f}"
            + (")" if half is None else f" ± {half:.2f})"))
    return text if within(runs, raws) else f"**{text}**"


def ratio_text(rates, raws):
    """By the first rate at which no run diverged."""
    for rate, runs in rates.items():
        if points(runs, raws[rate]) is not None:
            raw, sent = (statistics.fmean(run["wire_bytes_per_step"] for run in both)
                         for both in (raws[rate], runs))
            return f"{raw / sent:.1f}"
    return "-"


def passes(rows, raws):
    """Whether a recipe of the family is within half a point, at either rate."""
    return any(within(row["rates"][rate], raw) for row in rows for rate, raw in raws.items())


def mean_accuracy(runs):
    """In %."""
    return 100 * statistics.fmean(run["accuracy"] for run in runs)


def families_beyond(result, rate, limit):
    """The families whose best accuracy is more than half a point below `limit`, in %, with the
    distance. `rate` None: at any rate."""
    found = []
    for family, rows in result["families"].items():
        seen = [mean_accuracy(runs) for row in rows for one, runs in row["rates"].items()
                if rate in (None, one) and not any("diverged" in run for run in runs)]
        if not seen:
            found.append(f"{family} (all diverge)")
        elif not is_near(max(seen) - limit):
            found.append(f"{family} ({max(seen) - limit:+.2f})")
    return ", ".join(found) or "none"


def distances(result):
    """Which families miss half a point, and by how much."""
    raws = {rate: mean_accuracy(runs) for rate, runs in result["raw"]["rates"].items()}
    yield (f"No recipe comes within {100 * MAX_ACCURACY_LOSS:.1f} points of raw in these families; the "
           "figure is the distance of the best one:")
    yield ""
    for rate, raw in raws.items():
        yield f"- at the rate {rate}: {families_beyond(result, rate, raw)};"
    best = max(raws.values())
    yield (f"- at any rate, compared with raw at its best rate ({best:.2f}): "
           f"{families_beyond(result, None, best)}.")
    yield ""


def section(result):
    raws = result["raw"]["rates"]
    seeds = result["seeds"]
    yield (f"Written by `make accuracy` at commit {result['commit']}, {result['date']}, on "
           f"{result['processor']} with {result['cores']} cores: the MNIST example, "
           f"{result['steps']} steps, two nodes with {RANKS_PER_NODE} workers each, seed"
           f"{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}. The accuracy, in %, is the "
           f"mean of the seeds on {TEST_IMAGES:,} images that were not trained on. In brackets are the "
           "points to raw at the same rate"
           + (", paired by seed, and after ± half their 95 % interval (Student)" if len(seeds) > 1 else "")
           + f". Bold: more than {100 * MAX_ACCURACY_LOSS:.1f} points below raw. Ratio: bytes raw by "
           "bytes sent, both legs together. *Diverges*: the loss was no number any more, with as many "
           "of the seeds as are said, or with all. Raw reaches "
           + " and ".join(f"{accuracy_text(runs)} at the rate {rate}" for rate, runs in raws.items())
           + ". The column *supposed cause* comes from the name of the recipe, not from a measurement.")
    yield ""
    yield from distances(result)
    yield "| family | recipe | ratio | " + " | ".join(f"rate {rate}" for rate in raws) + " | supposed cause |"
    yield "|---|---|---|" + "---|" * len(raws) + "---|"
    for family, rows in result["families"].items():
        for row in rows:
            cells = [cell(row["rates"][rate], raw) for rate, raw in raws.items()]
            lost = any(not within(row["rates"][rate], raw) for rate, raw in raws.items())
            yield (f"| {family} | `{row['recipe']}` | {ratio_text(row['rates'], raws)} | "
                   f"{' | '.join(cells)} | {reason(row['recipe']) if lost else ''} |")


def run_server(options):
    result_file = options.out / "server.json"
    options.steps, options.seeds = options.server_steps, options.server_seeds
    if options.report_only:
        result = json.loads(result_file.read_text(encoding="utf-8"))
    else:
        (options.out / "logs").mkdir(parents=True, exist_ok=True)
        if options.data and not list(pathlib.Path(options.data).glob("train-*-ubyte.gz")):
            raise NodesError(f"{options.data} has no training images of MNIST (train-*-ubyte.gz)")
        result = accuracy_server.measure_all(options)
        result_file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"written: {result_file}")
    lines = list(accuracy_server.table(result))
    print("\n".join(lines))
    if result["workers"] == accuracy_server.WORKERS and result["steps"] == accuracy_server.STEPS:
        replace_section(options.page, "server-accuracy", "\n".join(lines))
    return 0


def run(options):
    result_file = options.out / "accuracy.json"
    if options.report_only:
        result = json.loads(result_file.read_text(encoding="utf-8"))
    else:
        shutil.rmtree(options.out / "logs", ignore_errors=True)
        (options.out / "logs").mkdir(parents=True)
        families = {"chosen": options.recipe} if options.recipe else FAMILIES
        result = run_all(options, families)
        result_file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"written: {result_file}")
    if not options.recipe:
        replace_section(options.page, "accuracy", "\n".join(section(result)))
    missed = [family for family, rows in result["families"].items()
              if not passes(rows, result["raw"]["rates"])]
    for family in missed:
        print(f"MISSED: no recipe of {family} is within half a point of raw")
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--recipe", action="append", help="only these, and write no page")
    parser.add_argument("--table", choices=["families", "server", "both"], default="both",
                        help="which of the two tables")
    parser.add_argument("--report-only", action="store_true",
                        help="train nothing: the page from build/accuracy/accuracy.json")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/accuracy")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/codecs.md")
    accuracy_server.add_options(parser)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        status = run(options) if options.table != "server" else 0
        if options.table != "families" and not options.recipe:
            status = max(status, run_server(options))
        return status
    except (NodesError, OSError, ValueError) as error:
        print(f"accuracy: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\naccuracy: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
