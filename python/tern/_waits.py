"""Waits that a signal ends, in a program of this package that takes away what it has made.

An exception out of a handler of a signal comes between any two steps of the interpreter, inside of
the standard library too, which may drop it or leave a lock held. A handler does not end a wait that
begins just after it, and another thread's signal ends none. So the launcher and the keeper have
their signals written to a pipe, and wait for the pipe too. In a program of the user's there is no
pipe, and the waits are the system's.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import signal
import socket
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import IO, NamedTuple

_LOCK_POLL_SECONDS = 0.01


class SignalPipe:
    """The signals that come, in place of what they did before, until close()."""

    def __init__(self, numbers: Iterable[int]) -> None:
        """Thread: the main one."""
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(
            self._writer.fileno(), warn_on_full_buffer=False)
        # Only a signal with a handler is written.
        self._before = {number: signal.signal(number, lambda *_: None) for number in numbers}

    def close(self) -> None:
        """Thread: the main one."""
        for number, handler in self._before.items():
            # None: one that was not set from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        """To be waited for: readable when a signal has come."""
        return self._reader.fileno()

    def take(self) -> list[int]:
        """The numbers of those that have come since the last call, in their order."""
        try:
            return [number for number in self._reader.recv(4096) if number in self._before]
        except BlockingIOError:
            return []


class _End(NamedTuple):
    pipe: SignalPipe
    error: type[BaseException]


_end: ContextVar[_End | None] = ContextVar("end", default=None)


@contextlib.contextmanager
def ended_by(pipe: SignalPipe, error: type[BaseException]) -> Iterator[None]:
    """In the block, and in tasks that it starts, a signal ends waits by this error. It stays in the
    pipe."""
    token = _end.set(_End(pipe, error))
    try:
        yield
    finally:
        _end.reset(token)


def pause(seconds: float) -> None:
    """Waits for so long."""
    end = _end.get()
    if end is None:
        time.sleep(seconds)
    else:
        _wait(end, [], seconds)


def read_to_end(pipe: IO[bytes]) -> bytes:
    """What is written to the pipe until all its writers have closed it. `pipe`: without a
    buffer."""
    end = _end.get()
    read = b""
    while True:
        if end is not None:
            _wait(end, [pipe])
        some = pipe.read(4096)
        if not some:
            return read
        read += some


def lock(file: IO[bytes]) -> None:
    """Takes the lock of the file, flock(2), once nobody else has it."""
    end = _end.get()
    if end is None:
        fcntl.flock(file, fcntl.LOCK_EX)
        return
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            _wait(end, [], _LOCK_POLL_SECONDS)


def _wait(end: _End, others: list[IO[bytes]], seconds: float | None = None) -> None:
    poll = select.poll()
    poll.register(end.pipe, select.POLLIN)
    for other in others:
        poll.register(other, select.POLLIN)
    readable = poll.poll(None if seconds is None else 1000 * seconds)
    if any(number == end.pipe.fileno() for number, _ in readable):
        raise end.error
