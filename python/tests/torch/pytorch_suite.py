"""Runs PyTorch's own suite of torch.distributed, from the wheel, on two daemons.

    pytorch_suite.py --backend tern --world-size 2 --out results.json [TEST...]

Tern stands in for gloo, as suites.py says. The ranks are forked, where the suite would spawn them:
importing PyTorch anew in each rank of each test would take most of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import torch
from suites import Recorder, quiet, use_tern_as_gloo

from cluster import daemons

# What PyTorch's C++ says of gloo by a cast to gloo's class: Tern is asked under its own name.
UNDER_ITS_OWN_NAME = {"test_ddp_logging_data_cpu"}


def make_case(backend, world_size, folder, sockets):
    """The suite's class, with its tests as methods; a test passes under Tern alone if Tern has made
    a group for it. The suite reads its settings when it is imported."""
    made = folder / "made"
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
            made.unlink(missing_ok=True)
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        def _check_return_codes(self, *arguments):
            super()._check_return_codes(*arguments)
            self.assertEqual(made.exists(), backend == "tern")

        @classmethod
        def _run(cls, rank, test, *arguments, **more):
            torch.set_num_threads(1)
            if backend == "tern":
                os.environ["TERN_SOCKET"] = sockets[rank % len(sockets)]
                use_tern_as_gloo(made)
                if test in UNDER_ITS_OWN_NAME:
                    suite.BACKEND = "tern"
            super()._run(rank, test, *arguments, **more)

    return OnTern


def run(options):
    with tempfile.TemporaryDirectory(prefix="tern-suite-") as name, daemons(2) as nodes:
        case = make_case(options.backend, options.world_size, pathlib.Path(name),
                         [node.socket for node in nodes])
        names = options.tests or unittest.TestLoader().getTestCaseNames(case)
        recorder = Recorder()
        with quiet(options.log):
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
