"""How the ranks of a process group come together in a group of Tern.

The group's first rank mints an id and hands it to each other rank through the store of
torch.distributed. Each takes its copy out of the store, so that a store which lives on, as that of
torchrun, has no old id when the ranks come together again.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from datetime import timedelta
from typing import Any

from ..client import Client
from ..connecting import connect
from ..errors import ClosedError, DaemonLostError, LaunchError, TernError
from ..group import Group
from .failures import as_torch

_FAILED = "failed: "
# The daemon takes no longer op_timeout.
_LONGEST_S = 168 * 3600.0

_lock = threading.Lock()
# One for each process: a forked child has the parent's entry, and makes its own.
_clients: weakref.WeakValueDictionary[int, Client] = weakref.WeakValueDictionary()


def shared_client() -> Client:
    """This process's connection to its daemon, which ends with the last group that uses it. Where
    the daemon has ended since, a new one, to that which serves now.

    $TERN_ARENA_BYTES is the address space for tensors in flight, in bytes (0 or none: 1 GiB, or a
    quarter of the machine's memory if that is less).
    Raises ValueError if it is no number.
    """
    return _asked_client()[0]


def client_and_id() -> tuple[Client, str]:
    """shared_client(), and the id of a new group."""
    client, group_id = _asked_client()
    return client, group_id or client.mint()


def _asked_client() -> tuple[Client, str]:
    """And what its daemon has answered when it was asked whether it is still there: the id of a new
    group, or "" of a client that is new itself.

    An id that nobody joins by is one of the 1,024 groups of a user that the daemon remembers, until
    newer ones take its place.
    """
    with _lock:
        client = _clients.get(os.getpid())
        if client is not None:
            try:
                return client, client.mint()
            except (ClosedError, DaemonLostError):
                pass
        client = connect(arena_bytes=_arena_bytes())
        _clients[os.getpid()] = client
        return client, ""


def _arena_bytes() -> int:
    """What the environment says, or 0 for the default."""
    said = os.environ.get("TERN_ARENA_BYTES") or "0"
    if not (said.isascii() and said.isdigit()):
        raise ValueError(f"TERN_ARENA_BYTES={said!r} is no number of bytes: write it in digits "
                         "alone, 4294967296 for 4 GiB, or 0 for the default")
    return int(said)


def meet(store: Any, rank: int, size: int, timeout: timedelta) -> Group:
    """Joins as `rank` of `size`. `timeout`: for the others to come, and later for each operation to
    be submitted by all ranks. Raises the errors of connect() and Client.join(), those of the store,
    and LaunchError where the first rank cannot mint; Tern's are DistBackendErrors too."""
    try:
        return _meet(store, rank, size, timeout)
    except TernError as error:
        raise as_torch(error) from None


def _meet(store: Any, rank: int, size: int, timeout: timedelta) -> Group:
    seconds = min(timeout.total_seconds(), _LONGEST_S)
    if rank == 0:
        client, group_id = _mint(store, size)
    else:
        client = shared_client()
        store.wait([_key(rank)], timeout)
        group_id = store.get(_key(rank)).decode()
        # A store that cannot forget has one use.
        with contextlib.suppress(RuntimeError):
            store.delete_key(_key(rank))
        if group_id.startswith(_FAILED):
            raise LaunchError(f"the first rank has no group: {group_id.removeprefix(_FAILED)}")
    return client.join(group_id, rank, size, timeout=seconds, op_timeout=seconds)


def _mint(store: Any, size: int) -> tuple[Client, str]:
    """Tells all other ranks the id of a new group, or why there is none: they would wait for it."""
    told = f"{_FAILED}see its own error"
    try:
        client, group_id = client_and_id()
        told = group_id
        return client, group_id
    except TernError as error:
        told = f"{_FAILED}{error}"
        raise
    finally:
        for other in range(1, size):
            store.set(_key(other), told)


def _key(rank: int) -> str:
    return f"tern/group_of_rank/{rank}"
