"""How operations on the values of a GPU are started: on PyTorch's streams, where kernels can read,
and as many as the library takes."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import torch

from ..cuda import BoundTensor, DeviceTicket
from ..errors import TernError, WouldBlockError

_ALIGNMENT = 16  # bytes, of what kernels read


class Streams:
    """PyTorch's streams of one GPU, as averages use them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._own = torch.cuda.Stream(device)

    def current(self) -> int:
        """The handle of the one on which the program has its gradients."""
        handle: int = torch.cuda.current_stream(self._device).cuda_stream
        return handle

    @contextlib.contextmanager
    def own(self) -> Iterator[None]:
        """One of the averages' own is current meanwhile, and at the end all on it is done."""
        with torch.cuda.stream(self._own):
            yield
        self._own.synchronize()


class Copied(NamedTuple):
    """A gradient that does not begin where kernels can, and its aligned copy."""

    part: torch.Tensor
    copy: torch.Tensor


class AlignedParts:
    """Gradients where kernels can read them. DDP and FSDP2 put them one after the other, and
    kernels read 16 bytes at a time."""

    def __init__(self) -> None:
        self._copies: dict[str, torch.Tensor] = {}

    def of(self, own: str, part: torch.Tensor, copied: list[Copied]) -> torch.Tensor:
        """The part; or a copy, which is the same in every step, and is noted in `copied`."""
        if part.data_ptr() % _ALIGNMENT == 0:
            return part
        copy = self._copies.get(own)
        if copy is None:
            copy = self._copies[own] = torch.empty_like(part)
        copy.copy_(part)
        copied.append(Copied(part, copy))
        return copy


class Starts:
    """Starts averages in place on one device. The stream goes on at once. Thread: one at a
    time."""

    def __init__(self) -> None:
        self._unreported: collections.deque[DeviceTicket] = collections.deque()

    def start(self, bound: BoundTensor, values: torch.Tensor, *, stream: int, reduction: str,
              state_scale: float) -> DeviceTicket:
        """While the library has no place for it, or the tensor has an operation, waits for those
        that were started first. What they say is told by their own tickets."""
        while True:
            try:
                ticket = bound.all_reduce(values.data_ptr(), stream=stream, reduction=reduction,
                                          state_scale=state_scale, stream_waits=False)
                break
            except WouldBlockError:
                if not self._unreported:
                    raise
                with contextlib.suppress(TernError):
                    self._unreported.popleft().wait()
        self._unreported.append(ticket)
        return ticket

    def forget_ended(self) -> None:
        self._unreported = collections.deque(
            ticket for ticket in self._unreported if not ticket.ended)
