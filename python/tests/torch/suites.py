"""What runs tests that PyTorch brings: Tern in gloo's place, and a record of how each test ended.

PyTorch's tests ask for their backend by name in many places, and leave out tests by that name.
Therefore Tern stands in for gloo under gloo's name: every test that runs under gloo runs under
Tern, and none is left out that gloo has.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import time
import unittest

import torch.distributed as dist
from torch.distributed import distributed_c10d


def use_tern_as_gloo(made) -> None:
    """In a rank, before it makes its first group. Once Tern has made one, `made` is a file."""
    import tern.torch  # noqa: F401
    from tern.torch import registration
    from tern.torch.submissions import Submissions

    Submissions.event_prefix = "gloo"
    # Under gloo's name the group looks as if it had another backend beside Tern.
    registration._is_one_of_several = lambda _: False
    _make_gloo_a_plugin()
    plugin = dist.Backend._plugins["TERN"]

    def make(*arguments, **more):
        group = plugin.creator_fn(*arguments, **more)
        made.touch()
        return group

    for name in ("GLOO", "TERN"):
        dist.Backend._plugins[name] = plugin._replace(creator_fn=make)


def watch_gloo(made) -> None:
    """In a rank, before it makes its first group. Once gloo has made one, `made` is a file."""
    original = distributed_c10d._new_process_group_helper

    def make(size, rank, ranks, backend, *arguments, **more):
        group = original(size, rank, ranks, backend, *arguments, **more)
        if str(backend) != "fake":
            made.touch()
        return group

    distributed_c10d._new_process_group_helper = make


def _make_gloo_a_plugin() -> None:
    """Before PyTorch 2.14 the function that makes a group has a branch for gloo, and asks for a
    plugin of another name alone."""
    source = inspect.getsource(distributed_c10d._new_process_group_helper)
    for gloo in ("backend_str == Backend.GLOO", "backend == Backend.GLOO"):
        source = source.replace(gloo, "False")
    exec(source, vars(distributed_c10d))


class Recorder(unittest.TestResult):
    """What became of each test, with its seconds and the reason or the end of its traceback.
    `words`: how many of the last words of a test's id are its name."""

    def __init__(self, words: int = 1):
        super().__init__()
        self.found: dict[str, dict] = {}
        self._words = words
        self._began = 0.0

    def name_of(self, test) -> str:
        return ".".join(test.id().split(".")[-self._words:])

    def startTest(self, test):
        super().startTest(test)
        self._began = time.monotonic()

    def _record(self, test, outcome, reason=""):
        seconds = round(time.monotonic() - self._began, 1)
        name = self.name_of(test)
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

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addFailure(test, error)

    def addExpectedFailure(self, test, error):
        self._record(test, "passed", "it fails, as it says")

    def addUnexpectedSuccess(self, test):
        self._record(test, "failed", "it passes, and says that it fails")


@contextlib.contextmanager
def quiet(log):
    """What the ranks print goes to the log, what this process prints does not."""
    kept = os.dup(1), os.dup(2)
    sys.stdout = os.fdopen(kept[0], "w", buffering=1)
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        yield
    os.dup2(kept[1], 2)
