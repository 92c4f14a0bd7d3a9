"""Whether compression gains anything on this link, as the first steps show."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ..errors import TernError

_log = logging.getLogger("tern")

# The daemon tries recipes in the first steps; what it does in those after them is its choice.
_TRIED, _SEEN = 50, 100
# Recipes without loss save a few percent.
_NO_GAIN = 1.05


class Traffic(NamedTuple):
    """Bytes that this node has sent of what may lose values, and what they were before."""

    sent: int
    raw: int


class Gains:
    """Says once in the log that the link is too fast for the recipe "auto" to gain. Thread: one at
    a time."""

    def __init__(self, traffic: Callable[[], Traffic]) -> None:
        self._traffic = traffic
        self._steps = 0
        self._tried = Traffic(0, 0)

    def count_step(self) -> None:
        """A step has been submitted."""
        self._steps += 1
        if self._steps not in (_TRIED, _SEEN):
            return
        try:
            traffic = self._traffic()
        except TernError:
            return  # the group has failed, which the step itself says
        if self._steps == _TRIED:
            self._tried = traffic
            return
        sent, raw = traffic.sent - self._tried.sent, traffic.raw - self._tried.raw
        if sent > 0 and raw < _NO_GAIN * sent:
            _log.info("compress: the link is too fast to gain: in steps %d to %d gradients "
                      "travelled as they are (%.2f times fewer bytes than raw). `ternctl tuner` "
                      "says why, tern.torch.estimate() what each recipe would take",
                      _TRIED, _SEEN, raw / sent)
