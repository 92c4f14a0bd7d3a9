"""Signals that tell the launcher to end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from .._waits import SignalPipe, ended_by
from .ranks import exit_status

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Stop:
    """The first signal that tells this process to end: `signal`, its number, negative, for no exit
    status is. It cancels what is being done, unless that has said in_own_way(); a second one does
    in any case."""

    def __init__(self) -> None:
        self.signal: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.awaited = False

    @contextlib.contextmanager
    def in_own_way(self) -> Iterator[None]:
        """What the block does ends in its own way once it finds a signal."""
        self.awaited = True
        try:
            yield
        finally:
            self.awaited = False


async def until_told(work: Callable[[Stop], Coroutine[Any, Any, int]]) -> int:
    """The exit status that the work returns, or that of a signal which has cancelled it. Whatever
    it has made is taken away then.

    A step of the work may wait for a lock or a daemon, by tern._waits: a signal cancels it too. An
    answer of a daemon is waited for all the same, for some seconds at most.
    """
    stop, cancels = Stop(), asyncio.Event()
    signals = SignalPipe(_ENDING)

    def read() -> None:
        for number in signals.take():
            if stop.signal.done() or not stop.awaited:
                cancels.set()
            if not stop.signal.done():
                stop.signal.set_result(-number)

    loop = asyncio.get_running_loop()
    loop.add_reader(signals, read)
    cancelled = asyncio.ensure_future(cancels.wait())
    with ended_by(signals, asyncio.CancelledError):
        working = asyncio.ensure_future(work(stop))
    try:
        await asyncio.wait([cancelled, working], return_when=asyncio.FIRST_COMPLETED)
        read()  # one that has cancelled a step is still there
        if stop.signal.done() and (working.cancelled() or not working.done()):
            return exit_status(stop.signal.result())
        return working.result()
    finally:
        for task in (cancelled, working):
            task.cancel()
        await asyncio.gather(cancelled, working, return_exceptions=True)
        loop.remove_reader(signals)
        signals.close()
