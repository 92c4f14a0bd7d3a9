"""The averages of what FSDP2 calls a module's rows: the gradients of its shards, parameter after
parameter."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..cuda import BoundTensor, DeviceTicket
from ..errors import TernError
from ..tensor import Tensor
from .averages import Averages, Lossy
from .columns import Column
from .device_starts import AlignedParts, Copied, Starts, Streams
from .failures import as_torch
from .submissions import Submissions, scatter_out

_NO_TASK = -1  # of autograd, on this thread

# By how much the gradients of a parameter have grown since they were last averaged.
Scale = Callable[[str], float]


class Row(NamedTuple):
    """Gradients, contiguous, which are averaged in place."""

    values: torch.Tensor
    lossy: Sequence[Column]
    exact: Sequence[Column]
    reduction: str  # "average", or "sum"
    # Whether somebody reads it behind the hook; otherwise nobody does before backward() ends.
    is_read_at_once: bool

    def parts(self, columns: Sequence[Column]) -> list[torch.Tensor]:
        return [self.values[column.begin:column.end] for column in columns]


class HostShards:
    """Averages rows as elements: in the processor's memory, or through pinned copies of a GPU's. It
    waits for each. Thread: that of backward()."""

    def __init__(self, submissions: Submissions, tensors: Mapping[str, Tensor]) -> None:
        """`tensors`: of what may lose values, by parameter."""
        self._submissions, self._tensors = submissions, tensors
        self._pinned: torch.Tensor | None = None

    def average(self, row: Row, state_scale: Scale) -> None:
        values = row.values
        host = values if values.device.type == "cpu" else self._copied(values)
        seen = row._replace(values=host)
        averages = Averages(
            self._submissions,
            [Lossy(part, self._tensors[column.parameter], state_scale(column.parameter))
             for column, part in zip(row.lossy, seen.parts(row.lossy))],
            seen.parts(row.exact), row.reduction)

        def finish() -> None:
            averages.finish()
            if host is not values:
                values.copy_(host)

        self._submissions.start("the average of gradients", averages.calls(), [values],
                                finish=finish).wait()

    def release(self) -> None:
        """Gives memory back, with what is owed. Nothing may be under way."""
        for tensor in self._tensors.values():
            tensor.release()

    def _copied(self, values: torch.Tensor) -> torch.Tensor:
        """In pinned memory, which is the same in every step."""
        pinned = self._pinned
        if pinned is None or pinned.shape != values.shape or pinned.dtype != values.dtype:
            pinned = self._pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        return pinned.copy_(values)


class DeviceShards:
    """Averages rows on their GPU. The stream of the gradients waits for nothing: where nobody reads
    a row before the end of backward(), that waits for it. Thread: that of backward()."""

    def __init__(self, bound: Mapping[str, BoundTensor], together: BoundTensor | None,
                 streams: Streams, example: torch.Tensor, end: EndOfBackward) -> None:
        """`bound`: of what may lose values, by parameter. `together`: of all else. `example`: a
        row's values. `end`: of all modules of the model."""
        self._bound, self._together = bound, together
        self._streams, self._end = streams, end
        self._place, self._type = example.device, example.dtype
        self._exact_values = example.new_empty(together.count if together else 0)
        self._aligned = AlignedParts()
        self._running: _RunningRow | None = None

    def average(self, row: Row, state_scale: Scale) -> None:
        if (row.values.device, row.values.dtype) != (self._place, self._type):
            raise RuntimeError(f"gradients that were {self._type} on {self._place} in the first "
                               f"step are {row.values.dtype} on {row.values.device}: let "
                               "fully_shard() reduce in one type, by MixedPrecisionPolicy("
                               "reduce_dtype=torch.float32)")
        if self._running is not None:  # of a module that is used twice
            self._running.end()
        running = self._running = _RunningRow(row, self._exact_values, self._streams)
        is_awaited = self._end.takes(running)
        for column, part in zip(row.lossy, row.parts(row.lossy)):
            self._start(running, self._bound[column.parameter],
                        self._aligned.of(column.parameter, part, running.copied),
                        state_scale(column.parameter))
        if self._together is not None:
            scatter_out(self._exact_values, row.parts(row.exact), into_buffer=True)
            self._start(running, self._together, self._exact_values, 1.0)
        if row.is_read_at_once or not is_awaited:
            running.end()
            raise_first([running])

    def release(self) -> None:
        """Gives memory back, with what is owed. Nothing may be under way."""
        for bound in (*self._bound.values(), *filter(None, [self._together])):
            bound.release()
            bound.tensor.release()

    def _start(self, running: _RunningRow, bound: BoundTensor, values: torch.Tensor,
               state_scale: float) -> None:
        running.tickets.append(self._end.starts.start(
            bound, values, stream=self._streams.current(), reduction=running.reduction,
            state_scale=state_scale))


Shards = HostShards | DeviceShards


class _RunningRow:
    """A row of which operations are under way. It keeps the memory that they write."""

    def __init__(self, row: Row, exact_values: torch.Tensor, streams: Streams) -> None:
        self.reduction = row.reduction
        self.tickets: list[DeviceTicket] = []
        self.copied: list[Copied] = []
        self.failure: TernError | None = None
        self._row: Row | None = row
        self._exact_values, self._streams = exact_values, streams

    def end(self) -> None:
        """Waits for its operations, and puts what was copied where it belongs. Twice is once, and
        the next call goes on where a signal's handler has interrupted one."""
        row = self._row
        if row is None:
            return
        while self.tickets:
            try:
                self.tickets[0].wait()
            except TernError as error:
                self.failure = self.failure or error
            del self.tickets[0]
        if self.failure is None and (self.copied or row.exact):
            with self._streams.own(), torch.no_grad():
                for each in self.copied:
                    each.part.copy_(each.copy)
                scatter_out(self._exact_values, row.parts(row.exact))
        self._row, self.copied = None, []


class EndOfBackward:
    """Lets backward() return when all its rows have ended, and raise what has failed. Thread: that
    of backward()."""

    def __init__(self) -> None:
        self.starts = Starts()
        # By tasks of autograd: reentrant checkpoints have backward() in backward().
        self._rows: dict[int, list[_RunningRow]] = {}

    def takes(self, row: _RunningRow) -> bool:
        """Whether there is an end of backward() that waits for the row: a program may reduce
        gradients outside of it."""
        task: int = torch._C._current_graph_task_id()
        if task == _NO_TASK:
            return False
        self._rows.setdefault(task, []).append(row)
        engine: Any = torch.autograd.Variable._execution_engine
        # The first call ends all rows. A backward() that fails before makes none.
        engine.queue_callback(functools.partial(self._end, task))
        return True

    def wait_for_all(self) -> None:
        """Until no operation is under way. Failures are raised at the end of their backward()."""
        for rows in self._rows.values():
            for row in rows:
                row.end()

    def _end(self, task: int) -> None:
        self.wait_for_all()
        self.starts.forget_ended()
        own = self._rows.pop(task, [])
        # Of a backward() around this one, or of one that has failed.
        self._rows = {other: left for other, rows in self._rows.items()
                      if (left := [row for row in rows if row.failure is not None])}
        raise_first(own)


def raise_first(rows: Sequence[_RunningRow]) -> None:
    """The failure of a row that has ended, as PyTorch knows it."""
    for row in rows:
        if row.failure is not None:
            raise as_torch(row.failure) from None
