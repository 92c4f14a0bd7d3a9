"""Operations as events of PyTorch's profiler, "tern:all_reduce", from submission to end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import torch
from torch._C._profiler import _RecordFunctionFast

from .executors import Executor

# An event that ends in another thread than it began counts as asynchronous, which it is.
_ending = Executor(1, "tern-profiler")

# PyTorch 2.9.1 shows an event that ends in another thread only within another event, and 2.12.1
# alone too.
_IS_SHOWN_ALONE = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 12)


def begin(name: str, inputs: Sequence[torch.Tensor]) -> Callable[[], None] | None:
    """What ends the event, or None where nobody profiles."""
    if not torch.autograd._profiler_enabled():
        return None
    held = [_RecordFunctionFast(name, list(inputs), {})]
    with contextlib.nullcontext() if _IS_SHOWN_ALONE else _RecordFunctionFast("tern.submit"):
        held[0].__enter__()

    def end() -> None:
        # __exit__() does nothing in a thread that is not profiled itself: letting go ends the
        # event.
        try:
            ended = _ending.submit(held.clear)
        except RuntimeError:  # the interpreter ends, and takes no more work
            return
        ended.result()

    return end
