"""`tern up`: a daemon in the foreground, for ranks that another launcher starts."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from .._control import ask
from .._keeper import idle
from .._own_daemon import locked
from .._places import private_to_user, runtime_folder
from ..errors import LaunchError, WaitTimeoutError
from .coordination import Meeting, attend, identity, report_ready, take_place, told
from .job import first
from .output import say
from .place import linked_daemon, private_folder, running_daemon
from .processes import end_of
from .rendezvous import expect
from .sealed import Sealed
from .stopping import Stop, until_told

_POLL_SECONDS = 0.5
_SOCKET = "ternd.sock"

Daemon: TypeAlias = "subprocess.Popen[bytes]"


class UpOptions(NamedTuple):
    """Of the command line. `idle_seconds`: 0: the daemon stays until a signal comes. `meeting`:
    None on one node."""

    folder: pathlib.Path
    idle_seconds: float
    meeting: Meeting | None


def folder_of_socket(named: pathlib.Path | None) -> pathlib.Path:
    """Where programs will look: the folder that is named, else that of $TERN_SOCKET, else the
    user's runtime folder."""
    if named is not None:
        return named.absolute()
    said = os.environ.get("TERN_SOCKET")
    if not said:
        return runtime_folder()
    if pathlib.Path(said).name != _SOCKET:
        raise LaunchError(f"TERN_SOCKET={said} names no {_SOCKET}, which a daemon of `tern up` "
                          "listens on; name another path, or pass --folder")
    return pathlib.Path(said).absolute().parent


def wait_until_up(folder: pathlib.Path, timeout: float) -> None:
    """Returns when a daemon serves in the folder. Raises WaitTimeoutError."""
    deadline = time.monotonic() + timeout
    while not _serves(folder):
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"no daemon has come to serve at {folder / _SOCKET} within "
                                   f"{timeout:g} s; start `tern up` on this node")
        time.sleep(_POLL_SECONDS / 10)


def _serves(folder: pathlib.Path) -> bool:
    try:
        return (folder / _SOCKET).exists() and bool(ask(folder / "control.sock", "status"))
    except (OSError, ValueError):
        return False


def _refuse_second(folder: pathlib.Path) -> None:
    if _serves(folder):
        raise LaunchError(f"a daemon serves at {folder / _SOCKET} already; use it, or pass "
                          "--folder with another folder, and set TERN_SOCKET to its "
                          f"{_SOCKET} for the ranks")


@contextlib.contextmanager
def _own_folder(folder: pathlib.Path) -> Iterator[None]:
    """A folder of this user alone; removed again if it was made here."""
    made = not folder.exists()
    private_to_user(folder)
    try:
        _refuse_second(folder)
        yield
    finally:
        if made:
            shutil.rmtree(folder, ignore_errors=True)


class _Up:
    """One `tern up`."""

    def __init__(self, options: UpOptions, stop: Stop) -> None:
        self._options = options
        self._folder = options.folder
        self._stop = stop

    async def run(self) -> int:
        meeting = self._options.meeting
        with _own_folder(self._folder):
            if meeting is not None:
                meeting = meeting._replace(job=identity("up"))
                return await attend(meeting, functools.partial(self._take_part, meeting))
            with self._started(running_daemon(self._folder, "--listen", "127.0.0.1:0")) as daemon:
                return max(0, await self._serve(daemon))

    @contextlib.contextmanager
    def _started(self, running: contextlib.AbstractContextManager[Daemon]) -> Iterator[Daemon]:
        with contextlib.ExitStack() as stack:
            # Nobody who calls connect() meanwhile starts one of his own.
            with locked(self._folder):
                _refuse_second(self._folder)
                daemon = stack.enter_context(running)
            yield daemon

    async def _take_part(self, meeting: Meeting, node: Sealed, serves: bool) -> int:
        """This node's part of a job that has no ranks of its own."""
        place = await take_place(node, meeting, 0, serves)
        with private_folder() as private, self._started(linked_daemon(
                self._folder, private, node.local_address, place["cluster_key"])) as daemon:
            await report_ready(node, meeting, "")
            end = asyncio.create_task(expect(node, "end"))
            status = await self._serve(daemon, told(end))
            if end.done():
                return status
            await node.send({
                "kind": "ended", "status": max(0, status), "all": status < 0,
                "reason": f"`tern up` on node {place['node']} was told to end" if status < 0
                else ""})
            # Other nodes may still use this one's daemon.
            return await told(end)

    async def _serve(self, daemon: Daemon, *ends: object) -> int:
        """Returns 0 when the daemon has been idle long enough, the negative number of a signal that
        has come, or what one of `ends` returns. Raises LaunchError if the daemon has ended."""
        with self._stop.in_own_way():
            say(f"export TERN_SOCKET={self._folder / _SOCKET}", sys.stdout)
            return await first(asyncio.shield(self._stop.signal), *ends, self._ended(daemon),
                               self._idle())

    async def _ended(self, daemon: Daemon) -> int:
        status = await end_of(daemon)
        raise LaunchError(f"the daemon has ended with status {status}; "
                          f"{self._folder / 'ternd.log'} says why")

    async def _idle(self) -> int:
        allowed = self._options.idle_seconds
        idle_since = time.monotonic()
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            if not allowed or not await asyncio.to_thread(idle, self._folder):
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since >= allowed:
                return 0


async def up(options: UpOptions) -> int:
    """Runs a daemon until a signal comes, it has been idle, or the job has ended on another node.
    Returns the exit status. Raises LaunchError."""
    return await until_told(lambda stop: _Up(options, stop).run())
