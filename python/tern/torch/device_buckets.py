"""DDP's buckets whose gradients are encoded and decoded on the GPU, by tern.cuda."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch.futures import Future

from ..cuda import BoundTensor, Device, DeviceTicket
from ..errors import TernError
from ..tensor import Tensor
from .device_starts import AlignedParts, Copied, Starts, Streams
from .failures import as_torch
from .host_buckets import split
from .submissions import scatter_out


class Step:
    """What has been started since the futures before were handed over."""

    def __init__(self) -> None:
        self.tickets: list[DeviceTicket] = []
        self.copied: list[Copied] = []
        self.exact: list[torch.Tensor] = []
        # Buckets that wait for all of it.
        self.waiting: list[tuple[Future[torch.Tensor], torch.Tensor]] = []


class DeviceBuckets:
    """Averages buckets in place. The stream of the gradients waits for nothing: a future is
    complete when the averages are there, and has the failure if there is one.

    What must stay exact travels as one tensor, behind the last bucket, for which then all futures
    of the step wait. Thread: one at a time.
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
        self._aligned = AlignedParts()
        self._starts = Starts()
        self._step = Step()
        self._completing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tern-cuda")

    def average(self, bucket: dist.GradBucket,
                state_scale: Callable[[str], float]) -> Future[torch.Tensor]:
        """The hook's work. `state_scale`: by how much the gradients of a parameter have grown."""
        if bucket.index() == 0 and (self._step.waiting or self._step.tickets):
            self._hand_over(RuntimeError("the step ended before its last bucket"))
        future: Future[torch.Tensor] = Future()
        self._step.waiting.append((future, bucket.buffer()))
        try:
            self._start_all(bucket, state_scale)
            if bucket.is_last() or self._exact is None:
                self._hand_over()
        except BaseException as error:
            failure = as_torch(error) if isinstance(error, TernError) else error
            # A future takes no KeyboardInterrupt.
            self._hand_over(failure if isinstance(failure, Exception)
                            else RuntimeError("the step was interrupted"))
            raise failure from None
        # A failure that is set on a Python future is a value to C++; one that a callback raises is
        # a failure to both.
        return future.then(lambda done: done.wait())

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

    def _start_all(self, bucket: dist.GradBucket, state_scale: Callable[[str], float]) -> None:
        parameters = bucket.parameters()
        for parameter, part in zip(parameters, split(bucket.buffer(), parameters)):
            own = self._names[id(parameter)]
            if own in self._bound:
                self._start(self._bound[own], self._aligned.of(own, part, self._step.copied),
                            state_scale(own))
            else:
                self._step.exact.append(part)
        if bucket.is_last() and self._exact is not None:
            scatter_out(self._exact_values, self._step.exact, into_buffer=True)
            self._start(self._exact, self._exact_values, 1.0)

    def _start(self, bound: BoundTensor, values: torch.Tensor, scale: float) -> None:
        self._step.tickets.append(self._starts.start(
            bound, values, stream=self._streams.current(), reduction="average", state_scale=scale))

    def _hand_over(self, failure: Exception | None = None) -> None:
        """To the thread that completes futures: all that has been started since the last time.
        `failure`: of the futures, whatever becomes of the operations."""
        step, self._step = self._step, Step()
        self._starts.forget_ended()
        try:
            self._completing.submit(self._complete, step, failure)
        except RuntimeError:  # the interpreter ends, and takes no more work
            self._complete(step, failure)

    def _complete(self, step: Step, failure: Exception | None) -> None:
        try:
            for ticket in step.tickets:
                try:
                    ticket.wait()
                except TernError as error:
                    failure = failure or as_torch(error)
            if failure is None and (step.exact or step.copied):
                with self._streams.own(), torch.no_grad():
                    for each in step.copied:
                        each.part.copy_(each.copy)
                    scatter_out(self._exact_values, step.exact)
        except Exception as error:  # of the GPU
            failure = failure or error
        finally:
            for future, buffer in step.waiting:
                if failure is None:
                    future.set_result(buffer)
                else:
                    future.set_exception(failure)
