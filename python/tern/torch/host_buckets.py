"""DDP's buckets whose gradients go to the daemon as elements: from the processor's memory, or from
a GPU through pinned copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch.futures import Future

from ..tensor import Tensor
from .averages import Averages, Lossy
from .submissions import Submissions


class HostBuckets:
    """Averages buckets. Thread: one at a time."""

    def __init__(self, submissions: Submissions, names: Mapping[int, str],
                 tensors: Mapping[str, Tensor]) -> None:
        """`names`: of parameters, by their id(). `tensors`: declared, by the names of what may lose
        values."""
        self._submissions = submissions
        self._names, self.tensors = names, tensors
        # By bucket: memory, parameters and scales, and their averages.
        self._averages: dict[int, tuple[tuple[object, ...], Averages]] = {}
        self._pinned: dict[int, torch.Tensor] = {}

    def average(self, bucket: dist.GradBucket,
                state_scale: Callable[[str], float]) -> Future[torch.Tensor]:
        """The hook's work. `state_scale`: by how much the gradients of a parameter have grown."""
        buffer = bucket.buffer()
        host = buffer if buffer.device.type == "cpu" else self._copied(bucket.index(), buffer)
        averages = self._averages_of(bucket, host, state_scale)

        def finish() -> None:
            averages.finish()
            if host is not buffer:
                buffer.copy_(host)

        work = self._submissions.start("the average of gradients", averages.calls(), [buffer],
                                       finish=finish)
        return work.get_future().then(lambda done: done.wait()[0])

    def export_state(self) -> dict[str, bytes]:
        """This node's part of what is owed, by name."""
        return {own: tensor.export_state() for own, tensor in self.tensors.items()}

    def import_state(self, parts: Mapping[str, list[bytes]]) -> None:
        for own, tensor in self.tensors.items():
            tensor.import_state(*parts[own])

    def _copied(self, index: int, buffer: torch.Tensor) -> torch.Tensor:
        """The bucket in pinned memory, which is the same in every step."""
        host = self._pinned.get(index)
        if host is None or host.shape != buffer.shape or host.dtype != buffer.dtype:
            host = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)
            self._pinned[index] = host
        return host.copy_(buffer)

    def _averages_of(self, bucket: dist.GradBucket, host: torch.Tensor,
                     state_scale: Callable[[str], float]) -> Averages:
        """Those of the bucket in this memory: the last step's where nothing has changed."""
        parameters = bucket.parameters()
        own = [self._names[id(parameter)] for parameter in parameters]
        scales = [state_scale(name) if name in self.tensors else 1.0 for name in own]
        layout = (host.data_ptr(), *map(id, parameters), *scales)
        known = self._averages.get(bucket.index())
        if known is not None and known[0] == layout:
            return known[1]
        lossy, exact = [], []
        for name, part, scale in zip(own, split(host, parameters), scales):
            if name in self.tensors:
                lossy.append(Lossy(part, self.tensors[name], scale))
            else:
                exact.append(part)
        averages = Averages(self._submissions, lossy, exact)
        self._averages[bucket.index()] = layout, averages
        return averages


def split(buffer: torch.Tensor, parameters: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The gradients in a bucket's buffer, where they lie one after the other; DDP lays out those of
    complex parameters as pairs of real numbers."""
    parts: tuple[torch.Tensor, ...] = buffer.split(
        [each.numel() * (2 if each.is_complex() else 1) for each in parameters])
    return parts
