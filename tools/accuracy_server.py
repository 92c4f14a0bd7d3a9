"""The table of 3LC's paper for its own form, a parameter server on the ranks, beside that of all_reduce:
each on the MNIST example with one worker on each of ten nodes.

Lim, Andersen, Kaminsky, "3LC: Lightweight and Effective Traffic Compression for Distributed Machine
Learning" (arXiv:1802.07389), trained ResNet-110 on CIFAR-10. The workload here is another one, so that
the two halves of a row compare methods and not programs.
"""

import io
import math
import os
import statistics
import time

from kept_runs import KeptRuns
from nodes import Link, Nodes, NodesError
from origin import commit_name, processor_name
from training import DIVERGED, summarize, train

WORKERS = 10
SEEDS = [1, 2, 3]
STEPS = 1500
SPARSITIES = ["1.00", "1.50", "1.75", "1.90"]
# Wide enough that it does not decide how long this takes.
LINK = Link("10gbit", burst="4mb")

# The paper's section 5: how many times less traffic than f32, bits for each state change, and the points
# of test accuracy to its f32 baseline of 93.37 %, ten workers.
PAPER = {
    "1.00": {"ratio": 39.4, "bits": 0.812, "points": -0.05},
    "1.50": {"ratio": 70.9, "bits": 0.451, "points": -0.08},
    "1.75": {"ratio": 107, "bits": 0.298, "points": +0.14},
    "1.90": {"ratio": 160, "bits": 0.200, "points": -0.27},
}
FORMS = ("server", "all_reduce")

# Of Student's distribution: half of a two-sided interval of 95 % in standard errors, by how many seeds
# less one.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262,
           10: 2.228, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.000}


def interval(values):
    """Half the width of the 95 % interval of the mean; None of one value."""
    freedom = len(values) - 1
    if freedom < 1:
        return None
    student = STUDENT[max(known for known in STUDENT if known <= freedom)]
    return student * statistics.stdev(values) / math.sqrt(len(values))


class ServerTrainer:
    """Runs the example in both forms on one set of daemons."""

    def __init__(self, nodes, options, kept):
        self.nodes = nodes
        self.options = options
        self.kept = kept
        self.commit = commit_name()
        self.runs = 0

    def words(self, form, seed):
        words = ["--seed", seed, "--batch", self.options.batch]
        words += ["--server"] if form == "server" else []
        words += ["--data", self.options.data] if self.options.data else []
        words += ["--rate", self.options.rate] if self.options.rate else []
        return words

    def once(self, recipe, form, seed):
        """One run, or at which step its loss was no number any more."""
        self.runs += 1
        try:
            reports, link_bytes = train(self.nodes, f"-server{self.runs}", recipe, self.options.steps,
                                        self.words(form, seed), stream=io.StringIO(),
                                        ranks_per_node=1, seconds=self.options.run_seconds)
        except NodesError as error:
            diverged = DIVERGED.search(str(error))
            if not diverged:
                raise
            return {"seed": seed, "diverged": int(diverged[1])}
        row = summarize(recipe, reports, link_bytes, ranks_per_node=1)
        if not row["weights_agree"]:
            raise NodesError(f"{recipe}, {form}, seed {seed}: the ranks' weights differ")
        sent = sum(report["wire_bytes_per_step"] for report in reports)
        raw = sum(report["raw_bytes_per_step"] for report in reports)
        return {"seed": seed, "accuracy": row["test_accuracy"], "step_ms": row["step_ms"],
                "ratio": raw / sent, "bits": 32 * sent / raw}

    def kept_or_once(self, recipe, form, seed):
        options = self.options
        key = {"commit": self.commit, "recipe": recipe, "form": form, "seed": seed,
               "workers": options.workers, "steps": options.steps, "batch": options.batch,
               "rate": options.rate, "data": options.data, "loopback": options.loopback}
        run = self.kept.find(key)
        if run is None:
            run = self.once(recipe, form, seed)
            self.kept.keep(key, run)
        return run

    def measure(self, recipe, form):
        print(f"-- {recipe}, {form}", flush=True)
        runs = []
        for seed in self.options.seeds:
            begin = time.monotonic()
            runs.append(self.kept_or_once(recipe, form, seed))
            print(f"   seed {seed}: {run_text(runs[-1])} ({time.monotonic() - begin:.0f} s)",
                  flush=True)
        return runs


def run_text(run):
    if "diverged" in run:
        return f"diverges at step {run['diverged']}"
    return f"{100 * run['accuracy']:.2f} %, {run['ratio']:.1f} times less"


def measure_all(options):
    nodes = Nodes("tern-accuracy", options.programs, options.out / "logs", count=options.workers,
                  link=LINK, loopback=options.loopback)
    try:
        nodes.start_daemons()
        trainer = ServerTrainer(nodes, options, KeptRuns(options.out / "server-runs.jsonl"))
        raw = {form: trainer.measure("raw", form) for form in FORMS}
        rows = {s: {form: trainer.measure(f"3lc:s={float(s):g}", form) for form in FORMS}
                for s in options.sparsities}
    finally:
        nodes.close()
    return {"commit": trainer.commit, "processor": processor_name(), "cores": os.cpu_count(),
            "day": time.strftime("%Y-%m-%d"), "workers": options.workers, "steps": options.steps,
            "seeds": options.seeds,
            "batch": options.batch, "rate": options.rate,
            "data": "all of MNIST" if options.data else "the images that come with the example",
            "raw": raw, "rows": rows}


def mean_cell(values, form="{:.2f}"):
    half = interval(values)
    text = form.format(statistics.fmean(values))
    return text if half is None else f"{text} ± {form.format(half)}"


def accuracies(runs):
    """In %, of the runs that ended."""
    return [100 * run["accuracy"] for run in runs if "diverged" not in run]


def accuracy_cell(runs):
    values = accuracies(runs)
    lost = len(runs) - len(values)
    if not values:
        return "diverges"
    return mean_cell(values) + (f" ({lost} of {len(runs)} diverged)" if lost else "")


def points_cell(runs, raw):
    """To raw of the same form, the mean over the seeds that both have."""
    base = {run["seed"]: run["accuracy"] for run in raw if "diverged" not in run}
    points = [100 * (run["accuracy"] - base[run["seed"]]) for run in runs
              if "diverged" not in run and run["seed"] in base]
    return mean_cell(points, "{:+.2f}").replace("± +", "± ") if points else "-"


def traffic_cells(runs):
    done = [run for run in runs if "diverged" not in run]
    if not done:
        return ["-", "-"]
    return [f"{statistics.fmean(run['ratio'] for run in done):.1f}",
            f"{statistics.fmean(run['bits'] for run in done):.3f}"]


def table(result):
    """Lines of Markdown."""
    raw = result["raw"]
    seeds = ", ".join(map(str, result["seeds"]))
    yield (f"The MNIST example on {result['data']}: {result['workers']} nodes of one worker, "
           f"{result['steps']} steps of {result['batch']} examples a worker, "
           f"{'rate ' + str(result['rate']) if result['rate'] else 'the rate of the example'}, seeds "
           f"{seeds}; the mean of the seeds and, after ±, half its 95 % interval (Student). *Server*: "
           "every rank keeps a part of the model, gradients are pushed and differences pulled, both by "
           "the recipe. *All_reduce*: the sum of the gradients comes back compressed. Accuracy in % is "
           "that of the copy that ranks train with. Raw reaches "
           f"{accuracy_cell(raw['server'])} with a server and {accuracy_cell(raw['all_reduce'])} by "
           "all_reduce. The ratio is bytes raw by bytes sent of all blocks, bits are those of one value "
           "of a block. The last three columns are the paper's own, for **another workload**: "
           "ResNet-110 on CIFAR-10, ten workers, points to its f32 baseline. Commit "
           f"{result['commit']}, {result['day']}, {result['processor']} with {result['cores']} cores.")
    yield ""
    yield ("| s | server: ratio | bits | accuracy | points to raw | all_reduce: ratio | bits | accuracy "
           "| points to raw | paper: ratio | bits | points |")
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for sparsity, forms in result["rows"].items():
        cells = [sparsity]
        for form in FORMS:
            cells += traffic_cells(forms[form])
            cells += [accuracy_cell(forms[form]), points_cell(forms[form], raw[form])]
        paper = PAPER.get(sparsity)
        cells += [f"{paper['ratio']:g}", f"{paper['bits']:.3f}", f"{paper['points']:+.2f}"] if paper \
            else ["-", "-", "-"]
        yield f"| {' | '.join(cells)} |"


def add_options(parser):
    group = parser.add_argument_group("the table of the server form")
    group.add_argument("--data", help="folder with all of MNIST (*-ubyte.gz); without it the images "
                                      "that come with the example are used")
    group.add_argument("--workers", type=int, default=WORKERS)
    group.add_argument("--server-steps", type=int, default=STEPS)
    group.add_argument("--server-seeds", type=int, nargs="+", default=SEEDS)
    group.add_argument("--sparsities", nargs="+", default=SPARSITIES)
    group.add_argument("--batch", type=int, default=32, help="examples a worker and step")
    group.add_argument("--rate", type=float, help="peak learning rate; default: the example's")
    group.add_argument("--run-seconds", type=float, default=1800.0, help="the longest one run may take")
    group.add_argument("--loopback", action="store_true", help="no namespaces")
