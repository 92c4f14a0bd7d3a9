"""What the benchmarks that measure in rounds on two nodes have in common: their options, their log folder,
the loop and the way they end."""

import argparse
import pathlib
import shutil
import sys

from nodes import NodesError

ROOT = pathlib.Path(__file__).resolve().parent.parent


def options_of(description, name, rate):
    """A parser with the options that all of them have; results go to build/NAME."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / name)
    parser.add_argument("--rate", default=rate, help="of the link each way, in the words of tc")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loopback", action="store_true")
    return parser


def empty_logs(options):
    """The folder of the logs, without those of an earlier run."""
    logs = options.out / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    return logs


def in_rounds(nodes, options, measure):
    """What measure(number) gives in each round."""
    if not nodes.network:
        print(f"on the loopback interface, which is not shaped ({nodes.why_no_network})")
    rounds = []
    for number in range(options.rounds):
        rounds.append(measure(number))
        print(f"round {number + 1} of {options.rounds}", flush=True)
    return rounds


def run_or_exit(run, options):
    try:
        run(options)
    except NodesError as error:
        sys.exit(str(error))
