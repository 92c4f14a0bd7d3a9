"""The operations of one process group, in the order in which they are submitted.

They are anonymous: those of different ranks match by that order, and arrive bit for bit.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch

from ..errors import OutOfMemoryError, TernError, UnsupportedError, WouldBlockError
from ..group import Group
from ..ticket import Ticket
from .failures import as_torch
from .neighbours import neighbours_of
from .profiling import begin
from .staging import current
from .work import TernWork

# For what is under way when a group is left in good order, as sends that nobody has waited for.
_LEAVING_S = 5.0


class Submissions:
    """Submits to a group of Tern, and keeps what has been submitted until it has ended: a Work that
    the program drops still copies its result. Thread: any."""

    # Before the names of events in PyTorch's profiler.
    event_prefix = "tern"

    def __init__(self, group: Group) -> None:
        self.group = group
        self._lock = threading.Lock()
        self._running: dict[int, TernWork] = {}
        self._started = 0
        self._neighbours = neighbours_of(group.client)
        self._neighbours.add(self)

    @property
    def started(self) -> int:
        """How many there have been."""
        return self._started

    @property
    def running(self) -> list[TernWork]:
        """What has been started and was not seen to end, the oldest first."""
        return list(self._running.values())

    def start(self, name: str, calls: Iterable[Callable[[], Ticket]], result: list[torch.Tensor], *,
              finish: Callable[[], None] | None = None, timeout: timedelta | None = None,
              inputs: Sequence[torch.Tensor] | None = None) -> TernWork:
        """Submits what `calls` submit, as one Work. When too many operations are in flight, or the
        arena is full, it waits for earlier ones, of all groups of the client. `inputs`: what the
        profiler is told of, if other than `result`."""
        staging = current.get()
        if staging is not None:
            result = staging.originals(result)
            finish = _both(finish, staging.up)
        tickets: list[Ticket] = []
        unreported: list[Ticket] = []
        ended = begin(f"{self.event_prefix}:{name}", result if inputs is None else inputs)
        try:
            for call in calls:
                tickets.append(self._submit(call, unreported))
                unreported.append(tickets[-1])
        except TernError as error:
            raise as_torch(error) from None
        work = TernWork(name, tickets, result, finish=finish, timeout=timeout, ended=ended)
        self._keep(work)
        return work

    def buffer(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of any content, in the arena if it has room."""
        size = count * dtype.itemsize
        try:
            memory = torch.from_numpy(self.group.client.empty(max(size, 1), "uint8"))
        except OutOfMemoryError:
            return torch.empty(count, dtype=dtype)
        return memory[:size].view(dtype)

    def joined(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The elements of all, one after the other, in a buffer."""
        buffer = self.buffer(sum(tensor.numel() for tensor in tensors), tensors[0].dtype)
        scatter_out(buffer, tensors, into_buffer=True)
        return buffer

    def method(self, name: str) -> Any:
        """A method of the group that a later version of the package brings."""
        if not hasattr(self.group, name):
            raise as_torch(UnsupportedError(
                f"this version of Tern has no {name}; install a later one, or use another backend "
                "for the group that needs it"))
        return getattr(self.group, name)

    def leave(self) -> None:
        """Waits a little for what is under way, and leaves the group."""
        deadline = time.monotonic() + _LEAVING_S
        for work in self.running:
            with contextlib.suppress(Exception):
                left = max(0.001, deadline - time.monotonic())
                work.wait(timedelta(seconds=left))
        self.group.leave()

    def abort(self) -> None:
        """Leaves the group at once; what is under way fails on all ranks."""
        self.group.leave()

    def _submit(self, call: Callable[[], Ticket], own: list[Ticket]) -> Ticket:
        while True:
            try:
                return call()
            except (WouldBlockError, OutOfMemoryError):
                if not self._neighbours.wait_for_one(own):
                    raise

    def _keep(self, work: TernWork) -> None:
        with self._lock:
            self._started += 1
            number = self._started
            self._running[number] = work
            earlier = list(self._running.values())[:-1]
        work.when_ended(lambda: self._running.pop(number, None))
        for other in earlier:
            if not other.is_completed():
                break


def _both(first: Callable[[], None] | None, second: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        if first is not None:
            first()
        second()

    return run


def scatter_out(buffer: torch.Tensor, tensors: Sequence[torch.Tensor], *,
                into_buffer: bool = False) -> None:
    """Copies consecutive parts of the buffer to the tensors, of whatever strides; or back."""
    with torch.no_grad():
        parts = buffer.split([tensor.numel() for tensor in tensors])
        for part, tensor in zip(parts, tensors):
            if into_buffer:
                part.view(tensor.shape).copy_(tensor)
            else:
                tensor.detach().copy_(part.view(tensor.shape))
