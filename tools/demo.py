#!/usr/bin/python3
"""The demonstration: data-parallel training on MNIST over a 100 Mbit/s link, raw and compressed.

Two nodes with one ternd and two workers each train the same network once for every recipe. Ends with a
table, build/demo/result.json and build/demo/accuracy.png; exit status 1 if a promise is missed: raw
reaches 95 %, the lossy recipe comes within 0.5 points of it, its steps are at least 5 times faster
(on the shaped link), and all ranks end with the same bits.
"""

import argparse
import json
import pathlib
import shutil
import signal
import subprocess
import sys

from nodes import Link, Nodes, NodesError
from nodes_security import MODES
from training import MAX_ACCURACY_LOSS, RANKS_PER_NODE, compare, loses_accuracy, summarize, train

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPES = ["raw", "3lc:s=1"]

RATE = "100mbit"
# The burst is smaller than what one compressed step sends, so that the bucket does not carry it for
# free; with it iperf3 measures 92 Mbit/s in both directions at once.
LINK = Link(RATE, burst="16kb")
# The default, 256 KiB, takes 21 ms on this link: with smaller chunks both directions are busy at once.
SETTINGS = '[ops]\nchunk_bytes = "64KiB"\n'

# Of raw a step takes a tenth of a second on this link, and a new user waits for it.
STEPS = 400
MIN_RAW_ACCURACY = 0.95
MIN_SPEED_UP = 5.0


def print_table(rows):
    print(f"\n{'recipe':10} {'step':>10} {'bytes/step':>11} {'ratio':>7} {'accuracy':>9} "
          f"{'speed-up':>9}")
    for row in rows:
        print(f"{row['recipe']:10} {row['step_ms']:7.1f} ms {row['wire_bytes_per_step']:11,.0f} "
              f"{row['ratio']:6.1f}x {100 * row['test_accuracy']:7.2f} % "
              f"{row['speedup_vs_raw']:8.1f}x")
    print("bytes/step: gradient blocks that one node sends")
    if "link_bytes_per_step" in rows[0]:
        counts = ", ".join(f"{row['recipe']} {row['link_bytes_per_step']:,.0f}" for row in rows)
        print(f"counted on the link, with all headers and set-up: {counts}")


def missed_promises(rows, shaped):
    raw = rows[0]
    if raw["test_accuracy"] < MIN_RAW_ACCURACY:
        yield f"raw reached {100 * raw['test_accuracy']:.2f} %, promised are " \
              f"{100 * MIN_RAW_ACCURACY:.0f} %"
    for row in rows:
        if not row["weights_agree"]:
            yield f"{row['recipe']}: the ranks' weights differ"
    for row in rows[1:]:
        if loses_accuracy(row, raw):
            yield f"{row['recipe']} reached {100 * row['test_accuracy']:.2f} %, more than " \
                  f"{100 * MAX_ACCURACY_LOSS:.1f} points below raw"
        if shaped and row["speedup_vs_raw"] < MIN_SPEED_UP:
            yield f"{row['recipe']}: {row['speedup_vs_raw']:.1f} times faster than raw, promised " \
                  f"are {MIN_SPEED_UP:.0f}"


def run(options):
    out = options.out
    shutil.rmtree(out / "logs", ignore_errors=True)
    (out / "logs").mkdir(parents=True)
    if options.data and not list(options.data.glob("*-ubyte.gz")):
        raise NodesError(f"{options.data} has no files of MNIST (*-ubyte.gz)")
    for program in ("ternd", "ternctl", "train_mnist"):
        if not (options.programs / program).exists():
            raise NodesError(f"{options.programs / program} is not there; run make demo")
    nodes = Nodes("tern-demo", options.programs, out / "logs", link=LINK,
                  loopback=options.loopback, settings=SETTINGS, mode=options.security)
    try:
        print(f"daemons talk by peer_security = {options.security}")
        if nodes.network:
            print(f"two nodes, {RANKS_PER_NODE} workers each, joined by a link of {RATE} each way")
        else:
            print(f"two nodes, {RANKS_PER_NODE} workers each, on the loopback interface: the link "
                  f"is not shaped, so that times say little ({nodes.why_no_network})")
        if options.data:
            print(f"images: {options.data}")
        data = ["--data", options.data.resolve()] if options.data else []
        nodes.start_daemons()
        rows = []
        for index, recipe in enumerate(RECIPES):
            reports, link_bytes = train(nodes, index, recipe, options.steps, data)
            rows.append(summarize(recipe, reports, link_bytes))
    finally:
        # A second Ctrl-C must not leave namespaces behind.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        nodes.close()
    compare(rows)
    shaped = nodes.network is not None
    result = out / "result.json"
    result.write_text(json.dumps({"link": RATE if shaped else None, "runs": rows}, indent=1)
                      + "\n", encoding="utf-8")
    print_table(rows)
    missed = list(missed_promises(rows, shaped))
    picture = out / "accuracy.png"
    picture.unlink(missing_ok=True)
    if subprocess.run([sys.executable, ROOT / "tools/plot_accuracy.py", result, picture],
                      check=False).returncode != 0:
        missed.append(f"{picture} could not be drawn")
    print(f"written: {result} and {picture}")
    for promise in missed:
        print(f"MISSED: {promise}")
    return 1 if missed else 0


def stop_on_signal(number, _frame):
    raise KeyboardInterrupt(signal.Signals(number).name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin",
                        help="folder with ternd, ternctl and train_mnist")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/demo")
    parser.add_argument("--data", type=pathlib.Path,
                        help="folder with MNIST's files (*-ubyte.gz), as for train_mnist; without it "
                             "the 10,000 images of the repository")
    parser.add_argument("--loopback", action="store_true", help="without namespaces and shaping")
    parser.add_argument("--security", choices=MODES, default="plaintext",
                        help="how the two daemons know each other")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_on_signal)
    try:
        return run(options)
    except NodesError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; everything is cleaned up", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
