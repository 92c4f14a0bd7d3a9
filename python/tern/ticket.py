"""Operations in flight."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from . import _structs as structs
from .errors import TernError, WaitTimeoutError

if TYPE_CHECKING:
    from .group import Group

# Python runs signal handlers between calls, not in them. A wait in slices of this many milliseconds
# lets Ctrl-C through, and notices that another thread has disconnected.
_SLICE_MS = 50

_RUNNING, _SUCCEEDED, _FAILED = range(3)


class Ticket:
    """One submitted operation: waited for, tested, cancelled, or awaited. Every collective returns
    one.

    The operation uses the memory of its arrays until it has ended, and the ticket keeps them alive.
    A result is in its array when the ticket has said so, not before. A ticket that is dropped does
    not cancel its operation: the client keeps the arrays, and the rank its place in the group,
    until its end has been noticed: by a later operation, join or split, or when the client
    disconnects, as it does when it is dropped.

    Thread: any, for all functions. Every wait on one ticket gives the same answer.
    """

    __slots__ = ("_client", "_group", "_number", "_result", "_keeps", "_state", "_error", "_lock")

    def __init__(self, group: Group, number: int, result: Any, keeps: tuple[Any, ...]) -> None:
        self._client = group.client
        # A group that nobody else keeps must not be left while the operation runs.
        self._group: Group | None = group
        self._number = number
        self._result = result
        self._keeps = keeps
        self._state = _RUNNING
        self._error: BaseException | None = None
        # Held by who asks the library: of two who ask at once, it would refuse one.
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> Any:
        """Returns the operation's output when it has succeeded: the array given as `out=`, else the
        input if the operation is in place, else a new array; None for a barrier.

        `timeout`: seconds; None waits without limit. Raises WaitTimeoutError when it has passed
        (the operation goes on), and the operation's own failure, as RankLostError or MismatchError.
        Ctrl-C interrupts the wait and leaves the operation running.
        """
        if timeout is not None and math.isnan(timeout):
            raise ValueError("timeout=nan: a timeout is a number of seconds")
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ask(deadline):
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimeoutError(f"the operation has not ended within {timeout} s; it goes "
                                       "on, and its memory is in use")
        return self._answer()

    def test(self) -> bool:
        """Whether the operation has succeeded by now. Raises the operation's failure."""
        if not self._ask(0.0):
            return False
        self._answer()
        return True

    def cancel(self) -> None:
        """Asks for the operation's end on all ranks, which then raise OperationCancelledError
        unless it has already completed there. Wait for the ticket all the same."""
        if self._state == _RUNNING:
            library = self._client._library
            status = library.tern_cancel(self._client._live(), self._number)
            if status != structs.OK and self._state == _RUNNING:
                raise library.failure(status)

    def future(self) -> concurrent.futures.Future[Any]:
        """A future of the same result, set by the client's notifying thread. Cancelling the future
        does not cancel the operation."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        self._client._notifier().watch(self, lambda: self._settle(future))
        return future

    def __await__(self) -> Generator[Any, None, Any]:
        """The output, as wait() returns it. A task that is cancelled meanwhile leaves the operation
        running."""
        if not self._ask(0.0):
            ended = asyncio.get_running_loop().create_future()
            self._client._notifier().watch(self, _waker(ended))
            yield from ended
        return self._answer()

    def _settle(self, future: concurrent.futures.Future[Any]) -> None:
        try:
            future.set_result(self._answer())
        except BaseException as error:
            future.set_exception(error)

    def _answer(self) -> Any:
        if self._error is not None:
            # Each who waits raises it anew, without the frames of the others.
            raise self._error.with_traceback(None)
        return self._result

    def _ask(self, deadline: float | None) -> bool:
        """Whether it has ended, waiting for one slice at most."""
        if self._state != _RUNNING:
            return True
        if self._client._forked:
            self._client._live()  # says so; the lock may never be given back here
        remaining_ms = _SLICE_MS
        if deadline is not None:
            remaining_ms = max(0, int(min(_SLICE_MS, 1000 * (deadline - time.monotonic()) + 0.999)))
        if not self._lock.acquire(timeout=remaining_ms / 1000):
            return False
        try:
            if self._state == _RUNNING:
                self._report(remaining_ms)
            return self._state != _RUNNING
        finally:
            self._lock.release()

    def _report(self, timeout_ms: int) -> None:
        statuses: list[int] = []
        try:
            connection = self._client._live()
            # C says once how it has ended. A signal's handler raises between two statements, mostly
            # as soon as C returns, so none comes between the answer and its being kept.
            statuses.extend(map(self._client._library.tern_wait, (connection,), (self._number,),
                                (timeout_ms,)))
        except TernError as error:  # closed meanwhile
            self._keep_end(error)
        finally:
            if statuses and statuses[0] != WaitTimeoutError.status:
                self._keep_end(None if statuses[0] == structs.OK else
                               self._client._library.failure(statuses[0]))

    def _keep_end(self, error: Exception | None) -> None:
        self._error = error
        self._state = _SUCCEEDED if error is None else _FAILED
        self._keeps = ()
        self._group = None

    def __del__(self) -> None:
        if getattr(self, "_state", None) == _RUNNING:
            assert self._group is not None  # until it has ended
            self._client._adopt(self._number, (self._result, self._keeps, self._group._place))

    def __repr__(self) -> str:
        return f"<tern.Ticket {('running', 'succeeded', 'failed')[self._state]}>"


def _waker(ended: asyncio.Future[None]) -> Callable[[], None]:
    """What wakes a task from another thread. A loop that has closed meanwhile has nobody left to
    wake."""
    loop = ended.get_loop()

    def set_ended() -> None:
        if not ended.done():
            ended.set_result(None)

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(set_ended)
        except RuntimeError:
            pass

    return wake
