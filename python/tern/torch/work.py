"""The Work of torch.distributed over tickets of Tern."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from ..errors import TernError, WaitTimeoutError
from ..ticket import Ticket
from .executors import Executor
from .failures import as_torch
from .untraced import leave_untraced

# Futures are completed by threads of their own: a callback may wait for the next operation, which
# must then be completed by another one. A group has at most so many operations in flight.
_completing = Executor(512, "tern-future")


class TernWork(dist.Work):
    """One call of torch.distributed: the tickets of its operations, and what is left to do after
    them.

    Thread: any, for all functions. `finish` runs once, in the thread that first sees the end.
    """

    def __init__(self, name: str, tickets: Sequence[Ticket], result: list[torch.Tensor], *,
                 finish: Callable[[], None] | None = None, timeout: timedelta | None = None,
                 ended: Callable[[], None] | None = None) -> None:
        """`result`: the tensors that result() and the future give. `finish`: copies what has come
        to where it belongs. `timeout`: of a wait() without one; None: the operation's own.
        `ended`: ends the profiler's event."""
        super().__init__()
        self._name = name
        self._tickets = tuple(tickets)
        self._result = result
        self._finish = finish
        self._timeout = timeout
        self._end_event = ended
        self._is_receive = name.startswith("recv")
        self._came_from = -1
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._future: Any = None
        self._told: Callable[[], object] | None = None
        self._is_watched = False

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Returns True when the result is there. `timeout`: 0 waits as long as the operation may
        take. Raises the operation's failure, as RankLostError, which is a RuntimeError too."""
        limit = timeout if timeout > timedelta(0) else self._timeout
        deadline = None if limit is None else time.monotonic() + limit.total_seconds()
        try:
            self._wait_for_tickets(deadline)
        except WaitTimeoutError:
            assert limit is not None
            raise as_torch(WaitTimeoutError(
                f"{self._name} has not ended within {limit.total_seconds():g} s; it goes on, and "
                "its tensors are in use. Wait again, or see `ternctl groups` for the rank that has "
                "not come")) from None
        self._end()
        return self._answer()

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        if not self._ended.is_set() and all(map(has_ended, self._tickets)):
            self._end()
        return self._ended.is_set()

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error if self.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """The tensors with the result. Raises RuntimeError before the end."""
        if not self.is_completed():
            raise RuntimeError(f"{self._name} has not ended; wait() for it first")
        self._answer()
        return self._result

    def get_future(self) -> Future[list[torch.Tensor]]:
        """A future of result(), for code in C++ too. Its callbacks run in a thread of this
        package."""
        base: Future[list[torch.Tensor]] | None = None
        with self._lock:
            if self._future is None:
                base = Future()
                # A failure that is set on a Python future is a value to C++; one that a callback
                # raises is a failure to both.
                self._future = base.then(lambda done: done.wait())
        if base is not None:
            try:
                self._watch(base)
            except BaseException as error:
                with self._lock:
                    self._future = None  # nobody would complete it: the next call tries again
                if isinstance(error, Exception):
                    base.set_exception(error)  # another thread may have it already
                raise
        return self._future

    def source_rank(self) -> int:
        """Of a receive that has ended: the rank from which it came."""
        if not self._is_receive:
            raise RuntimeError(f"{self._name} has no source rank: it is not a receive")
        if not self.is_completed():
            raise RuntimeError(f"{self._name} has not ended; wait() for it first")
        self._answer()
        return self._came_from

    def _source_rank(self) -> int:
        return self.source_rank()

    def when_ended(self, told: Callable[[], object]) -> None:
        """Has it call `told` once, in the thread that sees the end, or now."""
        with self._lock:
            self._told = told
            ended = self._ended.is_set()
        if ended:
            told()

    def watch(self, ended: Callable[[], object]) -> None:
        """Has a thread of this package see the end, and call `ended` then. Only the first call of
        this function counts."""
        with self._lock:
            seen, self._is_watched = self._is_watched, True
        if seen:
            return
        try:
            self._when_tickets_end(ended)
        except BaseException:
            with self._lock:
                self._is_watched = False  # nobody sees the end: the next call tries again
            raise

    def synchronize(self) -> None:
        """Does nothing: there is no stream on the processor."""

    def block_current_stream(self) -> None:
        self.wait()

    def _get_duration(self) -> float:
        raise RuntimeError("the duration of one operation is not measured; see `ternctl top`")

    def _watch(self, future: Future[list[torch.Tensor]]) -> None:
        def told() -> None:
            try:
                _completing.submit(self._complete, future)
            except RuntimeError:  # the interpreter ends, and takes no more work
                self._complete(future)

        if self._tickets:
            self._when_tickets_end(told)
        else:
            self._complete(future)

    def _when_tickets_end(self, told: Callable[[], object]) -> None:
        """Calls `told` once, in the client's notifying thread, or now if there are none."""
        tickets = self._tickets
        left = list(tickets)
        if not left:
            told()
            return
        lock = threading.Lock()

        def one_ended() -> None:
            with lock:
                left.pop()
                last = not left
            if last:
                told()

        for ticket in tickets:
            ticket._client._notifier().watch(ticket, one_ended)

    def _complete(self, future: Future[list[torch.Tensor]]) -> None:
        self._end()
        if self._error is None:
            future.set_result(self._result)
        else:
            future.set_exception(self._error)

    def _wait_for_tickets(self, deadline: float | None) -> None:
        for ticket in self._tickets:
            try:
                ticket.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except WaitTimeoutError:
                raise
            except TernError:
                pass  # _end() asks each for its failure

    def _end(self) -> None:
        """All tickets have ended."""
        with self._lock:
            if self._ended.is_set():
                return
            try:
                for ticket in self._tickets:
                    answer = ticket.wait()
                    if self._is_receive:
                        self._came_from = answer.source
                if self._finish is not None:
                    self._finish()
            except TernError as error:
                self._error = as_torch(error)
            except Exception as error:  # of the copies
                self._error = error
            if self._end_event is not None:
                self._end_event()
            self._tickets, self._finish, self._end_event = (), None, None
            self._ended.set()
            told = self._told
        if told is not None:
            told()

    def _answer(self) -> bool:
        if self._error is not None:
            raise self._error.with_traceback(None)
        return True

    def __repr__(self) -> str:
        return f"<tern.torch {self._name}, {'ended' if self._ended.is_set() else 'running'}>"


leave_untraced(TernWork, ("wait", "is_completed", "result", "get_future"))


def has_ended(ticket: Ticket) -> bool:
    """Well or not."""
    with contextlib.suppress(TernError):
        return ticket.test()
    return True
