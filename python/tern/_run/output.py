"""What the launcher writes: lines of its own and of the ranks. That nobody reads them any more, or
that a disk is full, neither ends a job nor changes its exit status."""

from __future__ import annotations

import os
import select
import sys
from typing import TextIO


def say(line: str, to: TextIO | None = None) -> None:
    """Writes a line of the launcher's own, to stderr if nothing is named."""
    to = to or sys.stderr
    try:
        write(to, f"{line}\n".encode(to.encoding, to.errors or "strict"))
    except OSError:
        drop(to)


def write(to: TextIO, data: bytes) -> None:
    """Writes all of it, past the buffer of `to`: what is left in there after an error would make
    Python exit with a status of its own. Raises OSError."""
    number, rest = to.fileno(), memoryview(data)
    while rest:
        try:
            rest = rest[os.write(number, rest):]
        except BlockingIOError:
            # Another process has made the pipe or terminal that it shares with this one so.
            writable = select.poll()
            writable.register(number, select.POLLOUT)
            writable.poll()


def drop(to: TextIO) -> None:
    """Whatever is written from here on goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, to.fileno())
    os.close(nowhere)
