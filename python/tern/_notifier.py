"""The thread that tells asyncio and futures of a client's operations that have ended."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .errors import TernError

if TYPE_CHECKING:
    from .ticket import Ticket

# The descriptor stays readable while anybody's ended operation is unreported, those of other
# threads too, so the thread sleeps until it becomes readable anew. What another thread took off the
# rings in between is found after so many seconds at the latest.
_RECHECK_S = 0.1


class Notifier:
    """Watches tickets of one client through the descriptor of tern_fd.

    Thread: watch() and stop() are for any. `told` runs in the notifying thread, once, when the
    ticket has ended, and must not block.
    """

    def __init__(self, fd: int) -> None:
        self._lock = threading.Lock()
        self._watched: list[tuple[Ticket, Callable[[], None]]] = []
        self._stopped = False
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll = select.epoll()
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)
        self._epoll.register(self._wake_fd, select.EPOLLIN | select.EPOLLET)
        # It must not keep a program from ending.
        self._thread = threading.Thread(target=self._run, name="tern-notifier", daemon=True)
        self._thread.start()

    def watch(self, ticket: Ticket, told: Callable[[], None]) -> None:
        with self._lock:
            if not self._stopped:
                self._watched.append((ticket, told))
                os.eventfd_write(self._wake_fd, 1)
                return
        # The client has disconnected: the ticket has an answer at once.
        ticket._ask(0.0)
        told()

    def stop(self) -> None:
        """Ends the thread once it has told of what is watched. The client has disconnected before,
        so that everything has ended."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                os.eventfd_write(self._wake_fd, 1)

    def _run(self) -> None:
        while self._tell():
            self._epoll.poll(_RECHECK_S if self._watched else None)
        self._epoll.close()
        os.close(self._wake_fd)

    def _tell(self) -> bool:
        """Tells of all that have ended. False: nothing is left, and nothing will come."""
        with self._lock:
            watched = list(self._watched)
        ended = [entry for entry in watched if _has_ended(entry[0])]
        with self._lock:
            for entry in ended:
                self._watched.remove(entry)
            goes_on = bool(self._watched) or not self._stopped
        for _, told in ended:
            told()
        return goes_on


def _has_ended(ticket: Ticket) -> bool:
    try:
        return ticket._ask(0.0)
    except TernError:
        return True
