"""tern.connect(): the daemon that is meant, or one of the user's own."""

from __future__ import annotations

import contextlib
import os

from . import _own_daemon
from ._places import SYSTEM_SOCKET, runtime_folder
from .client import Client
from .errors import DaemonAbsentError


def connect(socket: str | os.PathLike[str] | None = None, *, job: str | None = None,
            arena_bytes: int = 0, timeout: float | None = None, start: bool = True) -> Client:
    """Connects to a daemon of this node and returns a Client.

    That is the daemon at `socket`, else at $TERN_SOCKET, else the system's at /run/tern/ternd.sock,
    else the user's own in $XDG_RUNTIME_DIR/tern (without that variable /tmp/tern-UID), which is
    started if need be, needs no root, and ends when no program has been connected to it for
    $TERN_IDLE_SECONDS (60). With `start=False` none is started.

    `job`, `arena_bytes` and `timeout` (seconds), and errors: as those of Client. LaunchError or
    LibraryError if a daemon cannot be started.
    """
    said = socket or os.environ.get("TERN_SOCKET")
    if said:
        return Client(said, job=job, arena_bytes=arena_bytes, timeout=timeout)
    with contextlib.suppress(DaemonAbsentError):
        return Client(SYSTEM_SOCKET, job=job, arena_bytes=arena_bytes, timeout=timeout)
    if start:
        return _own_daemon.connect(job, arena_bytes, timeout)
    return Client(runtime_folder() / "ternd.sock", job=job, arena_bytes=arena_bytes,
                  timeout=timeout)
