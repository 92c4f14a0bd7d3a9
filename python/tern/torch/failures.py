"""Tern's exceptions in the classes that programs of torch.distributed catch."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist

from ..errors import TernError


@functools.cache
def _class_of(kind: Any) -> Any:
    return type(kind.__name__, (kind, dist.DistBackendError), {
        "__doc__": kind.__doc__, "__module__": kind.__module__})


def as_torch(error: TernError) -> TernError:
    """The same failure as an exception that is a DistBackendError, and so a RuntimeError, too."""
    if isinstance(error, dist.DistBackendError):
        return error
    twin: TernError = _class_of(type(error))(*error.args)
    twin.status, twin.remedy, twin.detail = error.status, error.remedy, error.detail
    return twin
