"""Tern's exceptions in the classes that programs of torch.distributed catch."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist

from ..errors import OperationTimeoutError, TernError


@functools.cache
def _class_of(kind: Any) -> Any:
    fields = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    twin: Any = type(kind.__name__, (kind, dist.DistBackendError), fields)
    return twin


def as_torch(error: TernError) -> TernError:
    """The same failure as an exception that is a DistBackendError, and so a RuntimeError, too."""
    if isinstance(error, dist.DistBackendError):
        already: TernError = error
        return already
    kind: Any = type(error)
    # Programs of torch.distributed look for these words.
    late = "Tern: Timed out waiting: " if isinstance(error, OperationTimeoutError) else ""
    # The name under which they set it.
    text = str(error).replace("raise arena_bytes", "raise arena_bytes ($TERN_ARENA_BYTES)")
    twin: TernError = _class_of(kind)(late + text)
    twin.status, twin.remedy, twin.detail = error.status, error.remedy, error.detail
    return twin
