"""The averages of what FSDP2 calls a module's rows: the gradients of its shards, parameter after
parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..cuda import BoundTensor, DeviceTicket
from ..errors import TernError
from ..tensor import Tensor
from .averages import Averages, Lossy
from .columns import Column
from .device_starts import AlignedParts, Copied, Starts, Streams
from .failures import as_torch
from .submissions import Submissions, scatter_out

# By how much the gradients of a parameter have grown since they were last averaged.
Scale = Callable[[str], float]


class EndOfBackward:
    """Lets backward() return when all that it has started has ended, and raise what has failed: a
    stream that waits goes on in any case. Thread: that of backward()."""

    def __init__(self) -> None:
        # With the memory that each writes.
        self._running: list[tuple[DeviceTicket, torch.Tensor]] = []

    def wait_for(self, ticket: DeviceTicket, memory: torch.Tensor) -> None:
        """Call it in backward()."""
        self._running.append((ticket, memory))
        engine: Any = torch.autograd.Variable._execution_engine
        # The first of its calls waits for all. A backward() that fails before makes none.
        engine.queue_callback(self._wait)

    def _wait(self) -> None:
        running, self._running = self._running, []
        failure: TernError | None = None
        for ticket, _ in running:
            try:
                ticket.wait()
            except TernError as error:
                failure = failure or error
        if failure is not None:
            raise as_torch(failure) from None


class HostShards:
    """Averages rows as elements: in the processor's memory, or through pinned copies of a GPU's."""

    def __init__(self, submissions: Submissions, tensors: Mapping[str, Tensor]) -> None:
        """`tensors`: of what may lose values, by parameter."""
        self._submissions, self._tensors = submissions, tensors
        self._pinned: torch.Tensor | None = None

    def average(self, row: torch.Tensor, lossy: Sequence[Column], exact: Sequence[Column],
                state_scale: Scale) -> None:
        host = row if row.device.type == "cpu" else self._copied(row)
        averages = Averages(
            self._submissions,
            [Lossy(host[column.begin:column.end], self._tensors[column.parameter],
                   state_scale(column.parameter)) for column in lossy],
            [host[column.begin:column.end] for column in exact])

        def finish() -> None:
            averages.finish()
            if host is not row:
                row.copy_(host)

        self._submissions.start("the average of gradients", averages.calls(), [row],
                                finish=finish).wait()

    def _copied(self, row: torch.Tensor) -> torch.Tensor:
        """The row in pinned memory, which is the same in every step."""
        if self._pinned is None or self._pinned.shape != row.shape:
            self._pinned = torch.empty(row.shape, dtype=row.dtype, pin_memory=True)
        return self._pinned.copy_(row)


class DeviceShards:
    """Averages rows on their GPU. The current stream waits for the averages, and the processor only
    at the end of backward()."""

    def __init__(self, bound: Mapping[str, BoundTensor], together: BoundTensor | None,
                 streams: Streams, example: torch.Tensor, end: EndOfBackward) -> None:
        """`bound`: of what may lose values, by parameter. `together`: of all else. `example`: a
        row."""
        self._bound, self._together = bound, together
        self._streams, self._end = streams, end
        self._exact_values = example.new_empty(together.count if together else 0)
        self._aligned = AlignedParts()
        self._starts = Starts()

    def average(self, row: torch.Tensor, lossy: Sequence[Column], exact: Sequence[Column],
                state_scale: Scale) -> None:
        self._starts.forget_ended()
        copied: list[Copied] = []
        for column in lossy:
            values = self._aligned.of(column.parameter, row[column.begin:column.end], copied)
            self._start(self._bound[column.parameter], values, state_scale(column.parameter), row)
        parts = [row[column.begin:column.end] for column in exact]
        if self._together is not None:
            scatter_out(self._exact_values, parts, into_buffer=True)
            self._start(self._together, self._exact_values, 1.0, row)
        for each in copied:
            each.part.copy_(each.copy)
        scatter_out(self._exact_values, parts)

    def _start(self, bound: BoundTensor, values: torch.Tensor, state_scale: float,
               row: torch.Tensor) -> None:
        ticket = self._starts.start(bound, values, stream=self._streams.current(),
                                    state_scale=state_scale, stream_waits=True)
        self._end.wait_for(ticket, row)


Shards = HostShards | DeviceShards
