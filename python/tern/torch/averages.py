"""The averages of one bucket of gradients, submitted together: a declared tensor for each gradient
that may lose values, and one operation for all that may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ..tensor import Tensor
from ..ticket import Ticket
from .batches import Batches
from .operands import view
from .submissions import Submissions, scatter_out


class Lossy(NamedTuple):
    """A gradient, contiguous, with its declaration and by how much gradients have grown since its
    last average."""

    gradient: torch.Tensor
    tensor: Tensor
    state_scale: float


class Averages:
    """Averages in place, again and again in the same memory. Thread: one at a time."""

    def __init__(self, submissions: Submissions, lossy: list[Lossy], exact: list[torch.Tensor],
                 reduction: str = "average") -> None:
        """`reduction`: or "sum", where the program divides itself."""
        self._exact = exact
        self._joined = None if not exact else submissions.buffer(
            sum(map(torch.numel, exact)), exact[0].dtype)
        self._batches = Batches(submissions.group)
        for gradient, tensor, state_scale in lossy:
            seen = view(gradient, tensor.name)
            self._batches.add(
                "all_reduce", seen.array, reduction=reduction, dtype=seen.dtype, tensor=tensor,
                state_scale=state_scale)
        if self._joined is not None:
            seen = view(self._joined, "the exact gradients")
            self._batches.add("all_reduce", seen.array, reduction=reduction, dtype=seen.dtype)

    def calls(self) -> list[Callable[[], Ticket]]:
        """What submits them, for Submissions.start(). The exact gradients are read now."""
        if self._joined is not None:
            scatter_out(self._joined, self._exact, into_buffer=True)
        return self._batches.calls()

    def finish(self) -> None:
        """Puts the exact averages where the gradients were."""
        if self._joined is not None:
            scatter_out(self._joined, self._exact)
