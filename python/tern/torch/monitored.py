"""A barrier that says who has not come. Its messages go through the store, not through Tern: it is
asked for when something is wrong.

A store may live on when a group ends, and the next group counts its barriers from 1 again. So keys
have the group's uid, and each is taken out by its reader.
"""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from typing import Any


def monitored_barrier(store: Any, number: int, group: Any, timeout: timedelta,
                      wait_all_ranks: bool) -> None:
    """Rank 0 waits for all others, who wait for its word. Raises RuntimeError on rank 0 with the
    ranks that have not come within `timeout`, on the others if rank 0 has not said that all are
    there. `number`: of this barrier in the group, the same on all ranks."""
    key = f"tern/barrier/{group.tern_group._uid}/{number}"
    if group.rank() != 0:
        store.set(f"{key}/{group.rank()}", "here")
        try:
            store.wait([f"{key}/all/{group.rank()}"], timeout)
        except RuntimeError:
            raise RuntimeError(
                f"Rank {group.rank()} successfully reached monitoredBarrier, but received errors "
                f"while waiting for send/recv from rank 0: it has not said within "
                f"{_milliseconds(timeout)} ms that all are there. Look at rank 0 for the ranks "
                "that are missing") from None
        _take_out(store, f"{key}/all/{group.rank()}")
        return
    if timeout <= timedelta(0):
        raise RuntimeError("Rank 0 timed out in monitoredBarrier after 0 ms: give it more time")
    missing = _missing(store, key, range(1, group.size()), timeout, wait_all_ranks)
    if missing:
        ranks = ", ".join(map(str, missing))
        raise RuntimeError(f"[Rank 0]: {'Ranks' if wait_all_ranks else 'Rank'} {ranks} failed to "
                           f"pass monitoredBarrier in {_milliseconds(timeout)} ms")
    for rank in range(1, group.size()):
        store.set(f"{key}/all/{rank}", "here")


def _missing(store: Any, key: str, ranks: range, timeout: timedelta,
             wait_all_ranks: bool) -> list[int]:
    deadline = time.monotonic() + timeout.total_seconds()
    missing = []
    for rank in ranks:
        left = timedelta(seconds=max(0.001, deadline - time.monotonic()))
        try:
            store.wait([f"{key}/{rank}"], left)
        except RuntimeError:
            missing.append(rank)
            if not wait_all_ranks:
                break
        _take_out(store, f"{key}/{rank}")
    return missing


def _take_out(store: Any, key: str) -> None:
    # A store that cannot forget keeps it.
    with contextlib.suppress(RuntimeError):
        store.delete_key(key)


def _milliseconds(timeout: timedelta) -> int:
    return round(timeout.total_seconds() * 1000)
