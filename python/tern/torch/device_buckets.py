"""DDP's buckets whose gradients are encoded and decoded on the GPU, by tern.cuda."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.futures import Future

from ..cuda import BoundTensor, Device, DeviceTicket
from ..errors import TernError, WouldBlockError
from ..tensor import Tensor
from .failures import as_torch
from .host_buckets import split
from .submissions import scatter_out


class Streams:
    """PyTorch's streams of one GPU, as buckets use them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._own = torch.cuda.Stream(device)

    def current(self) -> int:
        """The handle of the one on which gradients are computed."""
        handle: int = torch.cuda.current_stream(self._device).cuda_stream
        return handle

    @contextlib.contextmanager
    def own(self) -> Iterator[None]:
        """One of the buckets' own is current meanwhile, and at the end all on it is done."""
        with torch.cuda.stream(self._own):
            yield
        self._own.synchronize()


class Waiting(NamedTuple):
    """A bucket whose averages are not there yet."""

    future: Future[torch.Tensor]
    buffer: torch.Tensor


class DeviceBuckets:
    """Averages buckets in place. The stream of the gradients waits for nothing: a bucket's future
    is complete when its averages are there, and has the failure if there is one.

    What must stay exact travels as one tensor, behind the last bucket of the step. Thread: one at a
    time.
    """

    def __init__(self, names: Mapping[int, str], bound: Mapping[str, BoundTensor],
                 exact: BoundTensor | None, *, device: Device, streams: Streams,
                 place: torch.device) -> None:
        """`names`: of parameters, by their id(). `bound`: of what may lose values, by name.
        `exact`: of all else together. `device`: on which they are bound. `streams`, `place`:
        PyTorch's of it."""
        self.device = device
        self._names, self._bound, self._streams = names, bound, streams
        self._exact = exact
        self._exact_values = torch.empty(exact.count if exact else 0, device=place)
        self._exact_parts: list[torch.Tensor] = []
        self._running: list[DeviceTicket] = []
        # All of a step, if there is something exact.
        self._waiting: list[Waiting] = []
        self._completing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tern-cuda")

    def average(self, bucket: dist.GradBucket,
                state_scale: Callable[[str], float]) -> Future[torch.Tensor]:
        """The hook's work. `state_scale`: by how much the gradients of a parameter have grown."""
        buffer, parameters = bucket.buffer(), bucket.parameters()
        first = bucket.index() == 0
        if first:  # after a step that has failed there may be something left
            self._exact_parts, self._running, self._waiting = [], [], []
        stream = self._streams.current()
        base: Future[torch.Tensor] = Future()
        self._waiting.append(Waiting(base, buffer))
        try:
            for parameter, part in zip(parameters, split(buffer, parameters)):
                own = self._names[id(parameter)]
                if own in self._bound:
                    self._start(self._bound[own], part, stream, state_scale(own))
                else:
                    self._exact_parts.append(part)
            if bucket.is_last() and self._exact is not None:
                scatter_out(self._exact_values, self._exact_parts, into_buffer=True)
                self._start(self._exact, self._exact_values, stream, 1.0)
            if bucket.is_last() or self._exact is None:
                self._complete_later()
        except TernError as error:
            raise as_torch(error) from None
        # A failure that is set on a Python future is a value to C++; one that a callback raises is
        # a failure to both.
        return base.then(lambda done: done.wait())

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Of what may lose values, by name."""
        return {own: bound.tensor for own, bound in self._bound.items()}

    def export_state(self) -> dict[str, bytes]:
        """This node's part of what is owed, by name."""
        return {own: bound.export_state() for own, bound in self._bound.items()}

    def import_state(self, parts: Mapping[str, list[bytes]]) -> None:
        for own, bound in self._bound.items():
            bound.import_state(*parts[own])

    def _start(self, bound: BoundTensor, part: torch.Tensor, stream: int, scale: float) -> None:
        self._running.append(self._with_room(lambda: bound.all_reduce(
            part.data_ptr(), stream=stream, reduction="average", state_scale=scale,
            stream_waits=False)))

    def _with_room(self, call: Callable[[], DeviceTicket]) -> DeviceTicket:
        """Waits for earlier operations where too many are in flight."""
        for earlier in self._running:
            try:
                return call()
            except WouldBlockError:
                with contextlib.suppress(TernError):  # told by the future
                    earlier.wait()
        return call()

    def _complete_later(self) -> None:
        """All that has been started belongs to the futures that wait."""
        tickets, waiting, exact = self._running, self._waiting, self._exact_parts
        self._running, self._waiting, self._exact_parts = [], [], []
        self._completing.submit(self._complete, tickets, waiting, exact)

    def _complete(self, tickets: list[DeviceTicket], waiting: list[Waiting],
                  exact: list[torch.Tensor]) -> None:
        failure: BaseException | None = None
        for ticket in tickets:
            try:
                ticket.wait()
            except TernError as error:
                failure = failure or as_torch(error)
        if exact and failure is None:
            try:
                with self._streams.own():
                    scatter_out(self._exact_values, exact)
            except Exception as error:  # of the GPU
                failure = error
        for bucket in waiting:
            if failure is None:
                bucket.future.set_result(bucket.buffer)
            else:
                bucket.future.set_exception(failure)
