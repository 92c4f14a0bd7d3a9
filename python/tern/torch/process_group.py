"""The process group: what `init_process_group("tern")` and `new_group(backend="tern")` return."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .backend import BACKEND, TernBackend, has_python_backends
from .collectives import Collectives
from .dispatch import ALL_NAMES, group_of_cpp, through_dispatcher
from .meeting import meet
from .monitored import monitored_barrier
from .submissions import Submissions
from .untraced import leave_untraced


class TernProcessGroup(Collectives, dist.ProcessGroup):
    """Ranks that reduce and move tensors through the daemons of their nodes.

    Everything arrives bit for bit, and is reduced in one order on all ranks. Errors are Tern's own,
    as tern.RankLostError, and a RuntimeError at the same time. Thread: any.
    """

    def __init__(self, store: Any, submissions: Submissions, timeout: timedelta) -> None:
        """`submissions`: to a group that has been joined. `store`: that of the process group.
        `timeout`: of monitored_barrier()."""
        group = submissions.group
        dist.ProcessGroup.__init__(self, group.rank, group.size)
        self._store = store
        self._size = group.size
        self._timeout = timeout
        self._barriers = 0
        self._group_name = self._description = "undefined"
        self._submissions = submissions
        if has_python_backends():
            # C++ and torch.distributed itself ask a group's backend what it can do.
            self._backend = TernBackend(self._submissions, timeout)
            for device in ("cpu", "cuda"):
                self._register_backend(torch.device(device), self.BackendType.CUSTOM, self._backend)
            self._set_default_backend(self.BackendType.CUSTOM)

    @functools.cached_property
    def dispatched(self) -> dist.ProcessGroup:
        """The same group for operations that PyTorch's dispatcher has to see: dispatch.py."""
        return group_of_cpp(self, self._backend)

    @property
    def tern_group(self) -> Any:
        """The tern.Group beneath, for tensors of declare() and whatever torch has no word for.
        Anonymous operations on it count with those of torch.distributed. These do not wait for its
        tickets: where nothing but those holds the room that they need, they raise
        WouldBlockError."""
        return self._submissions.group

    def size(self) -> int:
        return self._size

    def getBackendName(self) -> str:
        return BACKEND

    name = getBackendName

    def getRank(self) -> int:
        return self.rank()

    def getSize(self) -> int:
        return self._size

    # What C++ calls by names that Python has as group_name and group_desc.

    def setGroupName(self, name: str) -> None:
        self._group_name = name

    def getGroupName(self) -> str:
        return self._group_name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    def get_group_store(self) -> Any:
        return self._store

    def split_group(self, new_ranks: Sequence[int], timeout: timedelta | None = None,
                    opts: object = None, group_name: str | None = None,
                    group_desc: str | None = None,
                    device_types: object = None) -> TernProcessGroup | None:
        """A group of some of this group's ranks, who all call this; None for the others. See
        torch.distributed.split_group(). `group_name`: by which the child's ranks meet; None: one of
        this group's name and the ranks."""
        if self.rank() not in new_ranks:
            return None
        limit = timeout or self._timeout
        # Two children that come about at once must not meet under one name.
        name = group_name or f"{self._group_name}:split:{'_'.join(map(str, new_ranks))}"
        store = dist.PrefixStore(f"{name}/", self._store)
        part = Submissions(meet(store, list(new_ranks).index(self.rank()), len(new_ranks), limit))
        child = TernProcessGroup(store, part, limit)
        child.setGroupName(name)
        child.setGroupDesc(group_desc or f"{self._description}:split")
        return child

    splitGroup = split_group

    def monitored_barrier(self, timeout: timedelta | None = None,
                          wait_all_ranks: bool = False) -> None:
        """A barrier whose failure names the ranks that have not come. See
        torch.distributed.monitored_barrier()."""
        self._barriers += 1
        limit = self._timeout if timeout is None else timeout
        monitored_barrier(self._store, self._barriers, self, limit, wait_all_ranks)

    def set_timeout(self, timeout: timedelta) -> None:
        """Of monitored_barrier() alone: Tern fixes the time for all ranks to submit an operation
        when they join."""
        self._timeout = timeout

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        self._submissions.leave()

    def abort(self) -> None:
        self._submissions.abort()

    def _set_sequence_number_for_group(self) -> None:
        """Tern counts by itself."""

    def _get_sequence_number_for_group(self) -> int:
        return self._submissions.started

    def __repr__(self) -> str:
        return f"<tern.torch process group, rank {self.rank()} of {self._size}>"


if has_python_backends():
    through_dispatcher(TernProcessGroup)
leave_untraced(TernProcessGroup, ALL_NAMES)
