"""The c10d Backend, from PyTorch 2.14 on: Tern for the processor's tensors of a process group that
has another backend for other devices, as "cpu:tern,cuda:nccl".

PyTorch hands a Backend's Work on as one that can only wait() and get_future().
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from .collectives import Collectives
from .dispatch import ALL_NAMES
from .meeting import meet
from .submissions import Submissions
from .untraced import leave_untraced

BACKEND = "tern"


def has_python_backends() -> bool:
    """Whether this PyTorch calls the methods of a Backend that is written in Python, which came
    with the new names of these methods."""
    return hasattr(c10d.Backend, "all_gather_single")


class TernBackend(Collectives, c10d.Backend):
    """The operations of a group of Tern, for C++ and for process groups of several backends."""

    def __init__(self, submissions: Submissions, timeout: timedelta) -> None:
        group = submissions.group
        c10d.Backend.__init__(self, group.rank, group.size)
        self._submissions = submissions
        self._size = group.size
        self._options = c10d.Backend.Options(BACKEND, timeout)

    @property
    def options(self) -> Any:
        return self._options

    supports_splitting = property(lambda self: True)
    supports_coalescing = property(lambda self: False)

    def split(self, store: Any, ranks: Sequence[int], opts: Any) -> TernBackend | None:
        """A backend for some of the ranks, who all call this with a store of their own."""
        if self.rank() not in ranks:
            return None
        timeout = self._options._timeout if opts is None else opts._timeout
        part = meet(store, list(ranks).index(self.rank()), len(ranks), timeout)
        return TernBackend(Submissions(part), timeout)

    def size(self) -> int:
        return self._size

    def getBackendName(self) -> str:
        return BACKEND

    name = getBackendName

    def supports_tensor_alloc(self, device: Any) -> bool:
        kind: str = torch.device(device).type
        return kind == "cpu"

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: Any) -> torch.Tensor:
        """A tensor in the arena, which the daemon reads and writes without a copy. Raises
        ValueError for a device other than the processor."""
        if not self.supports_tensor_alloc(device):
            raise ValueError(f"the arena is the processor's memory, and has no tensors of {device}")
        return self._submissions.buffer(size, dtype)

    def shutdown(self) -> None:
        self._submissions.leave()

    def abort(self) -> None:
        self._submissions.abort()

    def set_timeout(self, timeout: timedelta) -> None:
        """Does nothing: Tern fixes the time for all ranks to submit an operation when they join."""

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Tern counts by itself."""

    def _get_sequence_number_for_group(self) -> int:
        return self._submissions.started


leave_untraced(TernBackend, ALL_NAMES)
