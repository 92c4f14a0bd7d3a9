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
import math
import pathlib
import re
import shutil
import signal
import statistics
import sys

import accuracy_server
from nodes import Link, Nodes, NodesError
from page_section import replace_section
from training import DIVERGED, MAX_ACCURACY_LOSS, RANKS_PER_NODE, STEPS, loses_accuracy, summarize, train

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = [1]
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
    return next(text for pattern, text in REASONS if re.match(pattern, recipe))


def within(row, raw):
    return "diverged" not in row and not loses_accuracy(row, raw)


class Trainer:
    """Runs recipes on one pair of daemons."""

    def __init__(self, nodes, steps, seeds):
        self.nodes, self.steps, self.seeds = nodes, steps, seeds
        self.runs = 0

    def measure(self, recipe, rate):
        """The means over the seeds, and each seed's accuracy."""
        rows = []
        for seed in self.seeds:
            self.runs += 1
            try:
                reports, link_bytes = train(self.nodes, self.runs, recipe, self.steps,
                                            ["--seed", seed, "--rate", rate],
                                            stream=io.StringIO())  # nobody reads so many bars
            except NodesError as error:
                diverged = DIVERGED.search(str(error))
                if not diverged:
                    raise
                return {"diverged": int(diverged[1])}
            rows.append(summarize(recipe, reports, link_bytes))
        if not all(row["weights_agree"] for row in rows):
            raise NodesError(f"{recipe}: the ranks' weights differ")
        return {
            "test_accuracy": statistics.fmean(row["test_accuracy"] for row in rows),
            "accuracies": [row["test_accuracy"] for row in rows],
            "wire_bytes_per_step": statistics.fmean(row["wire_bytes_per_step"] for row in rows),
        }

    def measure_rates(self, recipe, rates):
        print(f"-- {recipe}", flush=True)
        rows = {str(rate): self.measure(recipe, rate) for rate in rates}
        print("   " + ", ".join(f"rate {rate}: {accuracy_text(row)}" for rate, row in rows.items()),
              flush=True)
        return {"recipe": recipe, "rates": rows}


def accuracy_text(row):
    if "diverged" in row:
        return f"diverges at step {row['diverged']}"
    return f"{100 * row['test_accuracy']:.2f} %"


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
        trainer = Trainer(nodes, options.steps, options.seeds)
        raw = trainer.measure_rates(RAW, RATES)
        rows = {family: [trainer.measure_rates(recipe, RATES) for recipe in recipes]
                for family, recipes in families.items()}
    finally:
        with ignored_signals():
            nodes.close()
    return {"steps": options.steps, "seeds": options.seeds, "raw": raw, "families": rows}


def cell(row, raw):
    if "diverged" in row:
        return accuracy_text(row)
    points = 100 * (row["test_accuracy"] - raw["test_accuracy"])
    text = f"{100 * row['test_accuracy']:.2f} ({points:+.2f})"
    return text if within(row, raw) else f"**{text}**"


def ratio_text(rows, raws):
    row = next((row for row in rows.values() if "diverged" not in row), None)
    if row is None:
        return "-"
    return f"{raws[str(RATES[0])]['wire_bytes_per_step'] / row['wire_bytes_per_step']:.1f}"


def passes(rows, raws):
    """Whether a recipe of the family is within half a point, at either rate."""
    return any(within(row["rates"][rate], raw) for row in rows for rate, raw in raws.items())


def families_beyond(result, rate, limit):
    """The families whose best accuracy is more than half a point below `limit`, with the distance.
    `rate` None: at any rate."""
    found = []
    for family, rows in result["families"].items():
        seen = [row["rates"][one]["test_accuracy"] for row in rows for one in row["rates"]
                if rate in (None, one) and "diverged" not in row["rates"][one]]
        if not seen:
            found.append(f"{family} (all diverge)")
        elif (points := 100 * (max(seen) - limit)) < -100 * MAX_ACCURACY_LOSS - 1e-6:
            found.append(f"{family} ({points:+.2f})")
    return ", ".join(found) or "none"


def doubts(result):
    """What the table does not show: who misses half a point, and how much of it is chance."""
    raws = result["raw"]["rates"]
    best = max(raw["test_accuracy"] for raw in raws.values())
    error = 100 * math.sqrt(best * (1 - best) / TEST_IMAGES)
    seeds = len(result["seeds"])
    yield (f"No recipe comes within {100 * MAX_ACCURACY_LOSS:.1f} points of raw in these families; the "
           "figure is the distance of the best one:")
    yield ""
    for rate, raw in raws.items():
        yield f"- at the rate {rate}: {families_beyond(result, rate, raw['test_accuracy'])};"
    yield (f"- at any rate, compared with raw at its best rate ({100 * best:.2f}): "
           f"{families_beyond(result, None, best)}.")
    yield ""
    yield (f"An accuracy is measured on {TEST_IMAGES:,} images with {seeds} "
           f"seed{'s' if seeds > 1 else ''}, and its standard error is {error:.1f} points: "
           "differences of half a point are within what chance makes. The column *supposed cause* "
           "comes from the name of the recipe, not from a measurement.")
    yield ""


def section(result):
    raws = result["raw"]["rates"]
    yield (f"Written by `make accuracy`: the MNIST example, {result['steps']} steps, two nodes with "
           f"{RANKS_PER_NODE} workers each, seed {', '.join(map(str, result['seeds']))}; accuracy on "
           f"images that were not trained on, in %, and the points to raw at the same rate. Bold: more "
           f"than {100 * MAX_ACCURACY_LOSS:.1f} points below it. Ratio: bytes raw by bytes sent, both "
           "legs together. Raw reaches "
           + " and ".join(f"{100 * row['test_accuracy']:.2f} at the rate {rate}"
                          for rate, row in raws.items()) + ".")
    yield ""
    yield from doubts(result)
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
