"""A line about a training loop: how far it is, how fast, and what Tern saves and costs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Generic, TextIO, TypeVar

from .errors import TernError
from .group import Group
from .statistics import Totals

_Item = TypeVar("_Item")

# A terminal's line is rewritten so often; in a log each line stays.
_REWRITE_SECONDS = 0.5
_LOG_SECONDS = 30.0


class Progress(Generic[_Item]):
    """What progress() returns: iterate over it, or call update() after every step. Thread: one."""

    def __init__(self, items: Iterable[_Item] | None, group: Group | None, total: int | None,
                 every: float | None, file: TextIO | None) -> None:
        self._items = items
        self._group = group
        self._total = total
        self._file = sys.stderr if file is None else file
        self._rewrites = _can_rewrite(self._file)
        self._every = (_REWRITE_SECONDS if self._rewrites else _LOG_SECONDS) if every is None \
            else every
        self._silent = group is not None and group.rank != 0
        self._steps = 0
        self._width = 0
        self._begun = self._shown_at = self._before_at = time.monotonic()
        self._shown_steps = -1
        self._before = self._totals()  # at _before_at, the last time that the daemon answered

    def update(self, steps: int = 1) -> None:
        """So many further steps are done. Shows the line if it is time."""
        self._steps += steps
        if time.monotonic() - self._shown_at >= self._every:
            self._show()

    def close(self) -> None:
        """Shows the last line and ends it. A second call does nothing."""
        if not self._silent:
            if self._shown_steps != self._steps:
                self._show()
            if self._rewrites:
                self._write("\n")
        self._silent = True

    def __iter__(self) -> Iterator[_Item]:
        if self._items is None:
            raise ValueError("progress() was given nothing to iterate over: call update()")
        with self:
            for item in self._items:
                yield item
                self.update()

    def __enter__(self) -> Progress[_Item]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _totals(self) -> Totals | None:
        """None without a group, and where its daemon does not answer: the loop says so itself."""
        if self._group is None or self._silent:
            return None
        try:
            return self._group.stats().total
        except TernError:
            return None

    def _show(self) -> None:
        if self._silent:
            return
        now, totals = time.monotonic(), self._totals()
        parts = [_steps(self._steps, self._total, now - self._begun)]
        if totals is not None:
            if self._before is not None:
                parts += _traffic(totals - self._before, now - self._before_at)
            self._before, self._before_at = totals, now
        self._shown_at, self._shown_steps = now, self._steps
        line = " | ".join(parts)
        if self._rewrites:
            # Blanks over what is left of a longer line: all that shows text understands them.
            self._write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._write(line + "\n")

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except (OSError, ValueError):
            self._silent = True  # closed; training goes on


def progress(items: Iterable[_Item] | None = None, *, group: Group | None = None,
             total: int | None = None, every: float | None = None,
             file: TextIO | None = None) -> Progress[_Item]:
    """Shows a line about a loop, on rank 0: `for batch in tern.progress(batches, group=group):`.

        step 120 of 1000, 12.3/s | 3.1 MB/s sent, 3.9x smaller, residual 0.42 | wire 61%, wait 20%

    `items`: what is iterated over; None: call update(). `total`: how many steps there will be;
    None: len(items) where it has one. `group`: whose declared tensors the line tells of: bytes sent
    by this node and their ratio, the largest residual, and the parts of the time of operations, all
    since the line before. `every`: seconds between lines. `file`: None: standard error.

    On a terminal and in a notebook the line is rewritten, every half second; elsewhere it is a line
    of its own, every 30 seconds and at the end. Other ranks than 0 show nothing.
    """
    if total is None and items is not None:
        try:
            total = len(items)  # type: ignore[arg-type]
        except TypeError:
            pass
    return Progress(items, group, total, every, file)


def _can_rewrite(file: TextIO) -> bool:
    """Notebooks show a carriage return as terminals do, though their streams are none."""
    try:
        return file.isatty() or type(file).__module__.startswith("ipykernel.")
    except ValueError:
        return False  # closed


def _steps(done: int, total: int | None, seconds: float) -> str:
    of = "" if total is None else f" of {total}"
    return f"step {done}{of}, {done / max(seconds, 1e-9):.3g}/s"


def _traffic(since: Totals, seconds: float) -> list[str]:
    if since.ops <= 0:
        return ["no operation on a declared tensor"]
    parts = []
    if since.bytes_sent > 0:
        sent = since.bytes_sent / max(seconds, 1e-9)
        parts.append(f"{_bytes(sent)}/s sent, {since.ratio:.3g}x smaller")
    if since.residual_ratio:
        parts.append(f"residual {since.residual_ratio:.2g}")
    shares = sorted(since.split.shares().items(), key=lambda share: -share[1])
    split = ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= 0.01)
    return [", ".join(parts), split] if parts else [split]


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
