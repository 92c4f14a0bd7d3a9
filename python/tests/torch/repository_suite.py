"""Runs one file of the tests in PyTorch's repository, its ranks on two daemons.

    repository_suite.py --backend tern --out results.json FILE [TEST...]

Tern stands in for gloo, as suites.py says. Only tests whose ranks are processes of their own are
run: where threads play the ranks no backend takes part. The ranks are forked, where PyTorch would
spawn them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import torch
from suites import Recorder, quiet, use_tern_as_gloo, watch_gloo
from torch.testing._internal import common_distributed

from cluster import daemons

# Seconds that a test may take: eight ranks on two cores take a minute and a half for the longest.
PATIENCE = 300
MOST_RANKS = 8  # of a test
# Some tests make groups of all sizes again and again, and destroy none.
MANY = ("--max-groups", "4096", "--max-groups-per-user", "4096",
        "--max-ops-in-flight-per-user", "1048576")


def fork_ranks(before_rank):
    """Makes PyTorch's test classes fork their ranks. `before_rank(rank)` runs first in each."""

    class Rank(multiprocessing.get_context("fork").Process):
        def run(self):
            torch.set_num_threads(1)
            before_rank(int(self.name.split()[-1]))  # the classes call it "process 3"
            super().run()

    torch.multiprocessing.set_start_method("fork", force=True)
    torch.multiprocessing.Process = Rank
    common_distributed.MultiProcessTestCase._spawn_processes = (
        lambda self: self._start_processes(Rank))


def run_without_accelerators():
    """Tests that ask for accelerators are tried on the processor: whether they pass there under
    gloo, gloo's run says. PyTorch that is built for CUDA names it as its accelerator even where
    there is none, and some tests ask how many there are without asking whether there is one."""
    torch.accelerator.current_accelerator = lambda *_, **__: None
    torch.accelerator.device_count = lambda: MOST_RANKS
    common_distributed.skip_if_lt_x_gpu = lambda _, **__: lambda test: test


def load_cases(path):
    """The tests of a file whose ranks are processes. A file that is for CUDA unless it finds
    another accelerator is for the processor here."""
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    source = path.read_text().replace('\nDEVICE = "cuda"\n', '\nDEVICE = "cpu"\n')
    exec(compile(source, path, "exec"), module.__dict__)
    ranked = (common_distributed.MultiProcessTestCase, common_distributed.MultiProcContinuousTest)
    for each in unittest.defaultTestLoader.loadTestsFromModule(module):
        yield from (case for case in each if isinstance(case, ranked))


class GroupRecorder(Recorder):
    """Records of each test, beside how it ended, whether a rank made a group: whether the file
    `made` is there then."""

    def __init__(self, made):
        super().__init__(words=2)
        self._made = made
        self._class = None

    def startTest(self, test):
        # Ranks of one kind outlive a test, with their group, and end with the class.
        outlive = isinstance(test, common_distributed.MultiProcContinuousTest)
        if not outlive or type(test) is not self._class:
            self._made.unlink(missing_ok=True)
        self._class = type(test)
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        if self.name_of(test) in self.found:
            self.found[self.name_of(test)]["made_group"] = self._made.exists()


def run(options):
    with tempfile.TemporaryDirectory(prefix="tern-suite-") as name, daemons(2, *MANY) as nodes:
        made = pathlib.Path(name, "made")

        def before_rank(rank):
            if options.backend == "tern":
                os.environ["TERN_SOCKET"] = nodes[rank % len(nodes)].socket
                use_tern_as_gloo(made)
            else:
                watch_gloo(made)

        common_distributed.TIMEOUT_DEFAULT = PATIENCE
        fork_ranks(before_rank)
        run_without_accelerators()
        recorder = GroupRecorder(made)
        cases = [case for case in load_cases(options.file)
                 if not options.tests or recorder.name_of(case) in options.tests]
        with quiet(options.log):
            unittest.TestSuite(cases).run(recorder)
    return recorder.found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=["gloo", "tern"], default="tern")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--log", default="/dev/null")
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    found = run(options)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
