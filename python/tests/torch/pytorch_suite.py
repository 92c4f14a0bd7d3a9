"""Runs PyTorch's own suite of torch.distributed, from the wheel, on two daemons.

    pytorch_suite.py --backend tern --world-size 2 --out results.json [TEST...]

The suite asks for its backend by name in many places, and leaves out tests by that name. Therefore
Tern stands in for gloo under gloo's name: every test that runs under gloo runs under Tern, and none
is left out that gloo has. The ranks are forked, where the suite would spawn them: importing
PyTorch anew in each rank of each test would take most of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import torch
import torch.distributed as dist

from cluster import daemons

# What PyTorch's C++ says of gloo by a cast to gloo's class: Tern is asked under its own name.
UNDER_ITS_OWN_NAME = {"test_ddp_logging_data_cpu"}


def _use_tern_as_gloo() -> None:
    from tern.torch import registration
    from tern.torch.submissions import Submissions

    Submissions.event_prefix = "gloo"
    # Under gloo's name the group looks as if it had another backend beside Tern.
    registration._is_one_of_several = lambda _: False
    dist.Backend._plugins["GLOO"] = dist.Backend._plugins["TERN"]


def make_case(backend, world_size, folder, sockets):
    """The suite's class, with its tests as methods. The suite reads its settings when it is
    imported."""
    (folder / "barrier").touch()
    (folder / "init_dir").mkdir()
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(world_size), TEMP_DIR=str(folder),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", TORCH_FR_BUFFER_SIZE="0")
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test as suite

    common_distributed.TIMEOUT_DEFAULT = 100

    class OnTern(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank, test, *arguments, **more):
            torch.set_num_threads(1)
            if backend == "tern":
                import tern.torch  # noqa: F401

                os.environ["TERN_SOCKET"] = sockets[rank % len(sockets)]
                if test in UNDER_ITS_OWN_NAME:
                    suite.BACKEND = "tern"
                else:
                    _use_tern_as_gloo()
            super()._run(rank, test, *arguments, **more)

    return OnTern


class Recorder(unittest.TestResult):
    """What became of each test, with its seconds and the reason or the end of its traceback."""

    def __init__(self):
        super().__init__()
        self.found = {}
        self._began = 0.0

    def startTest(self, test):
        super().startTest(test)
        self._began = time.monotonic()

    def _record(self, test, outcome, reason=""):
        name = test.id().rpartition(".")[2]
        seconds = round(time.monotonic() - self._began, 1)
        self.found[name] = {"outcome": outcome, "reason": reason, "seconds": seconds}
        print(f"{outcome:8} {seconds:6.1f} s {name} {reason.splitlines()[-1] if reason else ''}",
              flush=True)

    def addSuccess(self, test):
        self._record(test, "passed")

    def addSkip(self, test, reason):
        self._record(test, "skipped", reason)

    def addFailure(self, test, error):
        self._record(test, "failed", self._exc_info_to_string(error, test)[-1500:])

    addError = addFailure


@contextlib.contextmanager
def _quiet(log):
    """What the ranks print goes to the log, what this process prints does not."""
    kept = os.dup(1), os.dup(2)
    sys.stdout = os.fdopen(kept[0], "w", buffering=1)
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        yield
    os.dup2(kept[1], 2)


def run(options):
    with tempfile.TemporaryDirectory(prefix="tern-suite-") as name, daemons(2) as nodes:
        case = make_case(options.backend, options.world_size, pathlib.Path(name),
                         [node.socket for node in nodes])
        names = options.tests or unittest.TestLoader().getTestCaseNames(case)
        recorder = Recorder()
        with _quiet(options.log):
            for test in names:
                unittest.TestSuite([case(test)]).run(recorder)
    return recorder.found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=["gloo", "tern"], default="tern")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--log", default="/dev/null")
    parser.add_argument("--all-must-pass", action="store_true",
                        help="exit status 1 if a test fails or is left out")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    found = run(options)
    if options.out:
        options.out.write_text(json.dumps(
            {"backend": options.backend, "world_size": options.world_size,
             "torch": torch.__version__, "tests": found}, indent=1, sort_keys=True) + "\n")
    if options.all_must_pass and any(each["outcome"] != "passed" for each in found.values()):
        sys.exit("not all have passed")


if __name__ == "__main__":
    main()
