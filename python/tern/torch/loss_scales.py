"""What recipes remember of gradients that a loss scale multiplies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class LossScales:
    """The loss scale at each tensor's last operation. Thread: one at a time."""

    def __init__(self, scaler: Any) -> None:
        """`scaler`: a torch.amp.GradScaler, or None."""
        self._scaler = scaler
        self._last: dict[str, float] = {}

    def growth(self, own: str) -> float:
        """By how much the gradients of this parameter have grown since they were last asked for.
        Raises ValueError when the scale is 0, by which nothing is learned any more."""
        now = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        if not now:
            raise ValueError("the loss scale has fallen to 0: gradients were not finite in any "
                             "step for long. Look for what overflows, or begin with finite "
                             "weights")
        before = self._last.get(own, now)
        self._last[own] = now
        return now / before

    def state(self) -> dict[str, float]:
        """For a checkpoint."""
        return dict(self._last)

    def restore(self, state: Mapping[str, float]) -> None:
        """Goes on from state()."""
        self._last = dict(state)
