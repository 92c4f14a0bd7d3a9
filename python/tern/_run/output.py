"""What the launcher writes: lines of its own and of the ranks. That nobody reads them any more, or
that a disk is full, neither ends a job nor changes its exit status.

All of it goes past the buffers of `sys.stdout` and `sys.stderr`: what is left in there after an
error would make Python exit with a status of its own.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
from typing import TextIO


def say(line: str, to: TextIO | None = None) -> None:
    """Writes a line of the launcher's own, to stderr if nothing is named."""
    to = to or sys.stderr
    try:
        rest = memoryview(f"{line}\n".encode(to.encoding, to.errors or "strict"))
        while rest:
            _has_room(to, None)
            rest = rest[_write(to, rest):]
    except OSError:
        _drop(to)


class Output:
    """Where the lines of the ranks go. A reader that takes its time, as a pager does, keeps the
    ranks waiting but not the loop, which reads signals."""

    def __init__(self, to: TextIO) -> None:
        self._to = to
        self._line = asyncio.Lock()

    def writes(self) -> bool:
        """Whether a line is on its way."""
        return self._line.locked()

    async def write(self, line: bytes) -> None:
        """Writes a line between others. It is lost if nobody reads the stream any more."""
        async with self._line:
            rest = memoryview(line)
            try:
                while rest:
                    await _room(self._to)
                    rest = rest[_write(self._to, rest):]
            except OSError as error:
                # Lines are read all the same, or the ranks would wait for that.
                _drop(self._to)
                say(f"tern run: output of the ranks is lost from here on ({error}); the job goes "
                    "on")


async def _room(to: TextIO) -> None:
    if _has_room(to, 0):
        return
    loop, room = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(to, room.set)
    try:
        await room.wait()
    finally:
        loop.remove_writer(to)


def _has_room(to: TextIO, timeout: float | None) -> bool:
    """Whether a part can be written without a wait; also after an error, which the write tells."""
    room = select.poll()
    room.register(to, select.POLLOUT)
    return bool(room.poll(timeout))


def _write(to: TextIO, data: memoryview) -> int:
    """Writes a part, for which a pipe has room once it has any; returns its bytes. A line of one
    part stays whole where another stream has the same pipe."""
    try:
        return os.write(to.fileno(), data[:select.PIPE_BUF])
    except BlockingIOError:
        # Another writer was faster.
        return 0


def _drop(to: TextIO) -> None:
    """Whatever is written from here on goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, to.fileno())
    os.close(nowhere)
