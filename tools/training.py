"""One training run on two nodes with two workers each: what the demonstration and the table of
accuracies do with one recipe after the other."""

import json
import re
import sys
import threading
import time

from nodes import NodesError

RANKS_PER_NODE = 2
STEPS = 800
RUN_SECONDS = 600.0
MAX_ACCURACY_LOSS = 0.005

# What a worker says when it stops because of it.
DIVERGED = re.compile(r"the loss is not finite at step (\d+)")
PROGRESS = re.compile(r"step (\d+) of (\d+) loss (\S+) accuracy (\S+) seconds (\S+)")


class Progress:
    """A bar on a terminal, a line now and then elsewhere."""

    BAR = 30

    def __init__(self, recipe, stream):
        self.recipe = recipe
        self.stream = stream
        self.terminal = stream.isatty()
        self.printed_tenth = 0

    def show(self, done, steps, accuracy, seconds):
        percent = f"{accuracy:5.2f}" if accuracy > 0 else "    -"
        text = f"{self.recipe:10} step {done:4}/{steps}  accuracy {percent} %  {seconds:5.1f} s"
        if self.terminal:
            filled = self.BAR * done // steps
            self.stream.write(f"\r[{'#' * filled}{'.' * (self.BAR - filled)}] {text}")
        elif 10 * done // steps > self.printed_tenth:
            self.printed_tenth = 10 * done // steps
            self.stream.write(text + "\n")
        self.stream.flush()

    def end(self):
        if self.terminal:
            self.stream.write("\n")
            self.stream.flush()


def follow(stdout, progress):
    """Reads the lines of rank 0 to their end."""
    for line in stdout:
        match = PROGRESS.search(line.decode("utf-8", errors="replace"))
        if match:
            done, steps, _, accuracy, seconds = match.groups()
            progress.show(int(done), int(steps), float(accuracy), float(seconds))


def wait_for_workers(workers, seconds):
    """Returns when all have ended well; a NodesError as soon as one has not, or time is up."""
    deadline = time.monotonic() + seconds
    waiting = dict(enumerate(workers))
    while waiting:
        for rank, worker in list(waiting.items()):
            if worker.poll() is None:
                continue
            del waiting[rank]
            if worker.returncode != 0:
                raise NodesError(f"rank {rank} ended with status {worker.returncode}")
        if time.monotonic() > deadline:
            raise NodesError(f"the training did not end within {seconds:.0f} s")
        time.sleep(0.05)


def train(nodes, index, recipe, steps, more=(), stream=sys.stdout, ranks_per_node=RANKS_PER_NODE,
          seconds=RUN_SECONDS):
    """Runs all ranks with one recipe and returns their reports in the order of ranks. Progress goes
    to the stream."""
    ranks = nodes.count * ranks_per_node
    folder = nodes.folder / f"run{index}"
    folder.mkdir()
    bytes_before = nodes.network.bytes_sent() if nodes.network else None
    workers = []
    for rank in range(ranks):
        node = rank // ranks_per_node
        words = [nodes.programs / "train_mnist", "--rank", rank, "--size", ranks,
                 "--group-id-file", folder / "group", "--socket", nodes.socket(node),
                 "--recipe", recipe, "--steps", steps, "--result", folder / f"rank{rank}.json"]
        words += ["--progress"] if rank == 0 else []
        words += more
        workers.append(nodes.start(node, f"run{index}-rank{rank}", words))
    progress = Progress(recipe, stream)
    # The other ranks print nothing that could fill their pipes.
    reader = threading.Thread(target=follow, args=(workers[0].stdout, progress), daemon=True)
    reader.start()
    try:
        wait_for_workers(workers, seconds)
        reader.join(5.0)
    except NodesError as error:
        names = [f"run{index}-rank{rank}" for rank in range(ranks)]
        names += [f"ternd{node}" for node in range(nodes.count)]
        tails = [tail for tail in map(nodes.log_tail, names) if tail]
        raise NodesError("\n".join([str(error), *tails])) from None
    finally:
        progress.end()
    nodes.stop(workers)
    reports = [json.loads((folder / f"rank{rank}.json").read_text(encoding="utf-8"))
               for rank in range(ranks)]
    link_bytes = None if bytes_before is None else nodes.network.bytes_sent() - bytes_before
    return reports, link_bytes


def summarize(recipe, reports, link_bytes, ranks_per_node=RANKS_PER_NODE):
    """One row of the result. Bytes are those of one node, the mean of all."""
    steps = reports[0]["steps"]
    first_of_nodes = reports[::ranks_per_node]
    nodes = len(first_of_nodes)
    row = {
        "recipe": recipe,
        "steps": steps,
        "step_ms": reports[0]["step_ms"],
        "wire_bytes_per_step": sum(report["wire_bytes_per_step"] for report in first_of_nodes) / nodes,
        "test_accuracy": reports[0]["test_accuracy"],
        "weights_agree": all(report["weights_agree"] for report in reports)
                         and len({report["weights_checksum"] for report in reports}) == 1,
        "accuracy": [[point["seconds"], point["test_accuracy"]]
                     for point in reports[0]["accuracy"]],
    }
    if link_bytes is not None:
        row["link_bytes_per_step"] = link_bytes / nodes / steps
    return row


def compare(rows):
    raw = rows[0]
    for row in rows:
        row["ratio"] = raw["wire_bytes_per_step"] / max(1.0, row["wire_bytes_per_step"])
        row["speedup_vs_raw"] = raw["step_ms"] / row["step_ms"]


def loses_accuracy(row, raw):
    """More than half a point below raw; half an image is no loss."""
    return row["test_accuracy"] < raw["test_accuracy"] - MAX_ACCURACY_LOSS - 1e-9
