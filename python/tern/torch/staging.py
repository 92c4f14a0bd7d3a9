"""Tensors of a GPU in operations that take the processor's memory: through pinned copies.

A call copies what it reads down before it submits, and waits for that. When the operation has
ended, what it has written is copied up, and then the Work is complete: whoever has waited for it
finds the result on any stream.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import torch

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Twin(NamedTuple):
    """A tensor on a GPU, and its copy."""

    original: torch.Tensor
    host: torch.Tensor


class Staging:
    """The copies of one call."""

    def __init__(self, writes: bool) -> None:
        """`writes`: whether what is no input is written."""
        self._writes = writes
        self._twins: dict[int, Twin] = {}
        self._read: set[int] = set()
        self._written: list[Twin] = []

    def down(self, parameter: str, value: Any) -> Any:
        """The argument with copies in place of tensors on a GPU, also in lists. The name of its
        parameter tells inputs and outputs; "tensors" are both."""
        if isinstance(value, (list, tuple)):
            return [self.down(parameter, each) for each in value]
        if not _is_staged(value):
            return value
        twin = self._twins.get(id(value))
        if twin is None:
            twin = self._twins[id(value)] = Twin(value, empty_like(value))
        if not parameter.startswith("output") and id(value) not in self._read:
            self._read.add(id(value))
            twin.host.copy_(value.detach(), non_blocking=True)
        if self._writes and not parameter.startswith(("input", "source")):
            self._written.append(twin)
        return twin.host

    def is_down(self) -> None:
        """Returns when all copies have been made."""
        finish_copies(twin.original for twin in self._twins.values())

    def originals(self, results: list[torch.Tensor]) -> list[torch.Tensor]:
        by_host = {id(twin.host): twin.original for twin in self._twins.values()}
        return [by_host.get(id(result), result) for result in results]

    def up(self) -> None:
        """Copies back what has been written, and waits for it."""
        with torch.no_grad():
            for twin in self._written:
                twin.original.copy_(twin.host, non_blocking=True)
        finish_copies(twin.original for twin in self._written)


# Of the call that runs: what submits has to copy up at its end.
current: contextvars.ContextVar[Staging | None] = contextvars.ContextVar("staging", default=None)


def through_host(method: _Method, *, writes: bool = True) -> _Method:
    """A method that submits, for tensors on GPUs too. `writes`: whether to `tensors`. What may be
    written is copied down as well: a receive may get less than the tensor has room for."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if not any(map(_has_staged, arguments)) and not any(map(_has_staged, named.values())):
            return method(self, *arguments, **named)
        staging = Staging(writes)
        bound = signature.bind(self, *arguments, **named)
        for name, value in list(bound.arguments.items())[1:]:
            bound.arguments[name] = staging.down(name, value)
        staging.is_down()
        token = current.set(staging)
        try:
            return method(*bound.args, **bound.kwargs)
        finally:
            current.reset(token)

    return call  # type: ignore[return-value]


sending = functools.partial(through_host, writes=False)


def is_on_gpu(tensor: torch.Tensor) -> bool:
    """Whether it is to be copied."""
    cuda: bool = tensor.device.type == "cuda"
    return cuda


def empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Pinned memory for its elements."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)


def finish_copies(tensors: Iterable[torch.Tensor]) -> None:
    """Waits for copies on the current streams of the tensors' devices."""
    for device in {tensor.device for tensor in tensors}:
        torch.cuda.current_stream(device).synchronize()


def _is_staged(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and is_on_gpu(value)


def _has_staged(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_staged, value))
    return _is_staged(value)
