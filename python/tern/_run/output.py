"""What the launcher writes: lines of its own and of the ranks. That nobody reads them any more, or
that a disk is full, neither ends a job nor changes its exit status.

All of it goes past the buffers of `sys.stdout` and `sys.stderr`: what is left in there after an
error would make Python exit with a status of its own.
"""

from __future__ import annotations

import asyncio
import functools
import os
import select
import sys
from typing import NamedTuple, TextIO


def say(line: str, to: TextIO | None = None) -> None:
    """Writes a line of the launcher's own, to stderr if nothing is named, and waits for a reader.
    While ranks run, Output.say() does it."""
    to = to or sys.stderr
    try:
        rest = memoryview(_encoded(line, to))
        while rest:
            _has_room(to, None)
            rest = rest[_write(to, rest):]
    except OSError:
        _drop(to)


class Output:
    """Where lines go while the loop runs. A reader that takes its time, as a pager does, keeps the
    ranks waiting but not the loop, which reads signals.

    `line` is held by who writes one: streams that are one file share it.
    """

    def __init__(self, to: TextIO, line: asyncio.Lock) -> None:
        self._to = to
        self._line = line

    def writes(self) -> bool:
        """Whether a line is on its way."""
        return self._line.locked()

    async def say(self, line: str) -> None:
        """Writes a line of the launcher's own."""
        await self.write(_encoded(line, self._to))

    async def write(self, line: bytes) -> None:
        """Writes a line between others. It is lost if nobody reads the stream any more."""
        async with self._line:
            rest = memoryview(line)
            try:
                while rest:
                    await _room(self._to)
                    rest = rest[_write(self._to, rest):]
                return
            except OSError as error:
                # Lines are read all the same, or the ranks would wait for that.
                _drop(self._to)
                lost = error
        if self is not outputs().err:
            await outputs().err.say(f"tern run: output of the ranks is lost from here on ({lost}); "
                                    "the job goes on")


class _Outputs(NamedTuple):
    out: Output
    err: Output


@functools.cache
def outputs() -> _Outputs:
    """Those of this process."""
    line = asyncio.Lock()
    one = os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    return _Outputs(Output(sys.stdout, line), Output(sys.stderr, line if one else asyncio.Lock()))


def _encoded(line: str, to: TextIO) -> bytes:
    return f"{line}\n".encode(to.encoding, to.errors or "strict")


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
    """Writes a part, for which a pipe has room once it has any; returns its bytes."""
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
