"""A daemon of the user's own: found, or started under a lock, without root.

It lies in the user's runtime folder with its sockets and its log. Its keeper (tern._keeper) ends it
when nobody has been connected for TERN_IDLE_SECONDS (60). The lock is held by whoever starts,
connects to or ends the daemon, so that nobody connects to one that is about to go.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

from ._library import program
from ._places import runtime_folder
from ._waits import lock, read_to_end
from .client import Client
from .errors import DaemonAbsentError, LaunchError

_DEFAULT_IDLE_SECONDS = "60"


@contextlib.contextmanager
def locked(folder: pathlib.Path, wait: bool = True) -> Iterator[None]:
    """Holds the folder's lock. Raises BlockingIOError if another holds it and `wait` is false."""
    with (folder / "lock").open("wb") as file:
        if wait:
            lock(file)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def connect(job: str | None, arena_bytes: int, timeout: float | None) -> Client:
    """Connects to the user's own daemon, which is started if none runs."""
    folder = runtime_folder()
    socket = folder / "ternd.sock"
    with locked(folder):
        with contextlib.suppress(DaemonAbsentError):
            return Client(socket, job=job, arena_bytes=arena_bytes, timeout=timeout)
        _start(folder)
        return Client(socket, job=job, arena_bytes=arena_bytes, timeout=timeout)


def _start_keeper(folder: pathlib.Path, daemon: str,
                  says_ready: int) -> subprocess.Popen[bytes]:
    idle_seconds = os.environ.get("TERN_IDLE_SECONDS", _DEFAULT_IDLE_SECONDS)
    package = str(pathlib.Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    with (folder / "keeper.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tern._keeper", folder, daemon, idle_seconds, str(says_ready)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
            start_new_session=True, pass_fds=[says_ready],
            # NumPy comes with the package and is of no use to the keeper; nor are its threads.
            env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"})


def _start(folder: pathlib.Path) -> None:
    """Starts the keeper and returns when its daemon serves."""
    daemon = program("ternd")
    ready, says_ready = os.pipe()
    with open(ready, "rb", buffering=0) as answers:
        try:
            keeper = _start_keeper(folder, daemon, says_ready)
        except OSError as error:
            raise LaunchError(
                f"no daemon listens, and {daemon} cannot be started: {error}") from error
        finally:
            os.close(says_ready)
        try:
            answer = read_to_end(answers).decode(errors="replace")
        except BaseException:
            # Nobody would use what it starts. The lock is held until it has ended.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(keeper.pid, signal.SIGTERM)
            answers.read()
            raise
    # The keeper has a child do the keeping, and ends at once: nobody has to wait for that child.
    keeper.wait()
    if answer != "ready":
        raise LaunchError(f"no daemon listens, and {daemon} cannot be started: "
                          f"{answer or 'its keeper ended, see ' + str(folder / 'keeper.log')}")
