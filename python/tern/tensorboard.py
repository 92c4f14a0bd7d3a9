"""Scalars for TensorBoard: what compression saves, costs and leaves out, by tensor and by step.

    writer = torch.utils.tensorboard.SummaryWriter()   # or tensorboard.summary.Writer("runs")
    scalars = tern.tensorboard.Scalars(writer, group)
    for step in range(steps):
        ...
        scalars.log(step)

Any writer will do that has add_scalar(tag, value, step); neither PyTorch nor TensorBoard is
imported here. `pip install tensorboard` brings TensorBoard.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Protocol

from .group import Group
from .statistics import StepSplit, TensorStats, Totals

__all__ = ["Scalars", "Writer"]

_NS_PER_MS = 1e6


class Writer(Protocol):
    """What a writer must have."""

    def add_scalar(self, tag: str, value: float, step: int, /) -> Any:
        """Records the value under the tag at the step."""


class Scalars:
    """Writes the figures of a group's declared tensors, each since the log() before, to `writer`.

    Tags, which begin with `prefix`: PREFIX/ratio/NAME, bytes raw by bytes sent;
    PREFIX/residual/NAME, norm of the residual by that of the input; PREFIX/encode_ms/NAME, and in
    the same way queue, wire, decode and wait: milliseconds for each operation. Under NAME "all"
    they are of all tensors together, and there PREFIX/sent_mb/all is what this node sent, in
    megabytes. A tensor without a new operation is left out. The figures are this node's: one rank
    of a node is enough. Thread: one.
    """

    def __init__(self, writer: Writer, group: Group, prefix: str = "tern") -> None:
        self._writer = writer
        self._group = group
        self._prefix = prefix
        self._before: dict[str, Totals] = {}
        self._since(group.stats().tensors)

    def log(self, step: int) -> None:
        """Writes what has happened since the last call, at this step. It asks the daemon's control
        socket, which takes some milliseconds: not necessarily after each step. Raises
        UnknownGroupError after the group's end, DaemonAbsentError without a daemon."""
        rows = self._since(self._group.stats().tensors)
        for name, since in rows.items():
            self._write("ratio", name, since.ratio, step)
            self._write("residual", name, since.residual_ratio, step)
            for field in fields(StepSplit):
                ms = getattr(since.split, field.name) / since.ops / _NS_PER_MS
                self._write(field.name.replace("_ns", "_ms"), name, ms, step)
        if "all" in rows:
            self._write("sent_mb", "all", rows["all"].bytes_sent / 1e6, step)

    def _since(self, tensors: tuple[TensorStats, ...]) -> dict[str, Totals]:
        """By name, of those with new operations, and of all together under "all"."""
        rows = {}
        for tensor in tensors:
            before = self._before.get(tensor.name, Totals())
            now = self._before[tensor.name] = tensor.total
            # One that was declared anew counts from zero.
            since = now - before if now.ops >= before.ops else now
            if since.ops:
                rows[tensor.name] = since
        if rows:
            rows["all"] = sum(rows.values(), Totals())
        return rows

    def _write(self, what: str, name: str, value: float, step: int) -> None:
        self._writer.add_scalar(f"{self._prefix}/{what}/{name}", value, step)
