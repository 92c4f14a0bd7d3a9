"""A connection to the daemon of this node."""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import logging
import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _structs as structs
from . import arena
from ._durations import milliseconds
from ._handle import Handle
from ._library import library
from ._notifier import Notifier
from ._places import SYSTEM_SOCKET
from .arrays import Array, numpy_dtype
from .errors import ClosedError, ForkedError, UnknownTicketError, WaitTimeoutError
from .group import Group
from .statistics import NodeStats, stats

if TYPE_CHECKING:
    from .arrays import DTypeLike

_log = logging.getLogger("tern")

# Dropped tickets are asked for their end when so many have gathered, or when there is no room.
_ADOPTED_MANY = 32


class Client:
    """One connection to a daemon, with an arena of memory that both see. `tern.connect()` makes it.

    `with tern.connect() as client:` disconnects at the end. Thread: any, for all functions. After
    fork() a child's client raises ForkedError, and its arena is not there: arrays of empty() must
    not be touched in a child.
    """

    def __init__(self, socket: str | os.PathLike[str] | None = None, *, job: str | None = None,
                 arena_bytes: int = 0, timeout: float | None = None) -> None:
        """Connects to the daemon that listens on `socket` (None: $TERN_SOCKET, else
        /run/tern/ternd.sock) and starts none.

        `job`: label of the job, under which codec state is kept; None: $TERN_JOB, else "default".
        `arena_bytes`: address space for empty() and for copies of arrays elsewhere; 0: 1 GiB, or
        a quarter of the machine's memory if that is less. Copies that find no room there have
        regions, which are kept for later ones.
        `timeout`: seconds for the hand-shake and each request to the daemon; None: 5.
        Raises DaemonAbsentError, PermissionDeniedError, VersionMismatchError, QuotaExceededError.
        """
        self._connection: Handle | None = None
        self._library = library()
        self.socket = os.fspath(socket or os.environ.get("TERN_SOCKET") or SYSTEM_SOCKET)
        options = structs.sized(structs.ConnectOptions)
        options.socket_path = os.fsencode(self.socket)
        options.job = None if job is None else job.encode()
        options.arena_bytes = arena_bytes
        options.timeout_ms = milliseconds(timeout)
        self._groups: weakref.WeakSet[Group] = weakref.WeakSet()
        self._adopted: collections.deque[tuple[int, Any]] = collections.deque()
        self._own_notifier: Notifier | None = None
        self._lock = threading.Lock()
        # Held by _sweep(); disconnect() must not wait. A handler of what is logged may submit.
        self._sweeping = threading.RLock()
        self._forked = False
        pointer = ctypes.c_void_p()
        try:
            self._library.check(
                self._library.tern_connect(ctypes.byref(options), ctypes.byref(pointer)))
        finally:
            # Also where a signal's handler raises before the call's end is seen.
            if pointer.value:
                self._connection = Handle(pointer.value, self._library.tern_disconnect)
        _connected.add(self)

    def mint(self) -> str:
        """A new group id, for join() on all ranks. Whoever has the text can join: send it as one
        sends a secret. This node's daemon becomes the group's coordinator."""
        minted = structs.GroupId()
        self._library.check(
            self._library.tern_group_mint(self._live(), ctypes.byref(minted)))
        text: str = minted.text.decode()
        return text

    def join(self, group_id: str, rank: int, size: int, *, timeout: float | None = None,
             op_timeout: float | None = None, verify: bool = False, seed: int = 0) -> Group:
        """Joins the group as `rank` of `size` and returns when all ranks have joined.

        `group_id`: of mint(), the same on all ranks.
        `timeout`: seconds to wait for the other ranks; None: 60. `op_timeout`: an operation that
        not all ranks submit within so many seconds fails everywhere; None: the daemon's setting.
        `verify`: compares the checksums of results that all ranks have alike, those of all_reduce,
        all_gather and broadcast, across ranks after each of these. `seed`: for recipes that draw
        random numbers, the same on all ranks.
        Raises WaitTimeoutError (which names the missing ranks), BadSecretError, RankTakenError,
        WrongSizeError, UnreachableError. Ctrl-C interrupts it.
        """
        options = structs.sized(structs.JoinOptions)
        options.rank, options.size, options.verify = rank, size, verify
        options.seed = seed
        options.timeout_ms = milliseconds(timeout)
        options.op_timeout_ms = milliseconds(op_timeout)
        return Group(self, group_id, options)

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike = "float32") -> Array:
        """A NumPy array in the arena, of any content: operations use it in place, without a copy.

        `shape`: number of elements, or of each dimension. `dtype`: as NumPy's, or a name that
        operations take, as "bfloat16".

        Its memory is given back when the array and all views of it are gone. While one is left the
        arena stays mapped, after disconnect() too. Raises OutOfMemoryError when the arena is full;
        TypeError for a type that Tern does not carry.
        """
        return arena.empty(self._library, self._live(), shape, numpy_dtype(dtype))

    def region(self, shape: int | Sequence[int], dtype: DTypeLike = "float32") -> Array:
        """A NumPy array in memory of its own beside the arena, which the daemon makes: operations
        use it in place, however full the arena is; sends and recvs copy it. `shape`, `dtype` and
        the array's life are those of empty().

        A region is worth it for large arrays: it takes a question to the daemon, and a client has
        at most 64. Raises QuotaExceededError when the user's memory is used up; UnsupportedError if
        the library or the daemon is of an older version.
        """
        return arena.region(self._library, self._live(), shape, numpy_dtype(dtype))

    def stats(self) -> NodeStats:
        """What the client's daemon says of the jobs of this user: see tern.stats()."""
        return stats(self.socket)

    def disconnect(self) -> None:
        """Leaves all groups, whose operations in flight then fail, and ends the connection, or has
        it end with the last array of empty(). A second call does nothing. Operations of dropped
        tickets that have failed before are logged."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        # A child asks nothing, and the collector may have ended the connection before its client.
        if not (self._forked or connection.ended):
            self._report_adopted(connection)
        for group in list(self._groups):
            group.leave()
        if self._own_notifier is not None:
            self._own_notifier.stop()
        self._adopted.clear()

    @property
    def connected(self) -> bool:
        """Whether disconnect() has not been called."""
        return self._connection is not None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def __del__(self) -> None:
        # In a constructor that has failed there is nothing to end.
        if getattr(self, "_connection", None) is not None:
            self.disconnect()

    def _live(self) -> Handle:
        connection = self._connection
        if connection is None:
            raise ClosedError("the client has disconnected; connect again")
        if self._forked:
            raise ForkedError("the client belongs to the parent process; connect again in the "
                              "child")
        return connection

    def _notifier(self) -> Notifier:
        connection = self._live()
        with self._lock:
            if self._own_notifier is None:
                fd = ctypes.c_int()
                self._library.check(self._library.tern_fd(connection, ctypes.byref(fd)))
                self._own_notifier = Notifier(fd.value)
            return self._own_notifier

    def _adopt(self, number: int, keeps: Any) -> None:
        """Keeps the arrays of an operation whose ticket was dropped, and its place in the group,
        which perhaps nobody else keeps, until its end has been noticed. REQUIRES: `keeps` does not
        lead to this client, which could then not be dropped."""
        if self._connection is not None:
            self._adopted.append((number, keeps))

    def _sweep(self, wanted: bool = False) -> None:
        """Reports adopted operations that have ended. `wanted`: their room is; who calls returns
        when those that another thread reports have made room too."""
        if len(self._adopted) < _ADOPTED_MANY and not wanted:
            return
        connection = self._live()
        with self._sweeping:
            self._report_adopted(connection)

    def _report_adopted(self, connection: Handle) -> None:
        for _ in range(len(self._adopted)):
            try:
                entry = self._adopted[0]
            except IndexError:  # disconnect() or a handler of what is logged has taken the rest
                return
            # It is kept until the answer is there: what a signal's handler raises meanwhile must
            # not lose it, for its arrays are in use.
            status = self._library.tern_test(connection, entry[0])
            if status == WaitTimeoutError.status:
                self._adopted.rotate(-1)
                continue
            with contextlib.suppress(ValueError):  # disconnect() has taken it
                self._adopted.remove(entry)
            if status not in (structs.OK, UnknownTicketError.status):
                _log.warning("an operation whose ticket was dropped failed: %s",
                             self._library.failure(status))


def _give_up_in_child() -> None:
    """A child of fork() lacks all threads but one: nobody there gives back a lock that another
    thread held, and nobody tells of operations that have ended."""
    for client in _connected:
        client._forked = True
        client._own_notifier = None


os.register_at_fork(after_in_child=_give_up_in_child)


# Disconnected before the interpreter takes its modules apart.
_connected: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def _disconnect_all() -> None:
    for client in list(_connected):
        client.disconnect()
