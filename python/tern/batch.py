"""Operations that are submitted together."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _structs as structs
from . import collectives as table
from ._submit import Call, Prepared, prepare, start
from .ticket import Ticket

if TYPE_CHECKING:
    from .arrays import DTypeLike
    from .group import Group
    from .tensor import Tensor

_COLLECTIVES = {collective.name: collective for collective in (
    table.ALL_REDUCE, table.BROADCAST, table.REDUCE, table.REDUCE_SCATTER, table.ALL_GATHER,
    table.GATHER, table.SCATTER, table.ALL_TO_ALL)}


class Batch:
    """A list of operations of one group. `group.batch()` makes it.

        batch = group.batch()
        for gradient in gradients:
            batch.add("all_reduce", gradient)
        for step in range(steps):
            ...
            batch.submit().wait()

    A batch costs one call of the library however many operations it has, and may be submitted any
    number of times, one after the other: arguments are checked when they are added. It keeps its
    arrays. It counts as as many operations as it has: at most 512, or the daemon's setting
    max_ops_in_flight. No operation may write memory that another one reads or writes. They match
    those of other ranks as if they were submitted one by one: other ranks need no batch.

    Thread: one at a time.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._list: list[tuple[int, Prepared, Tensor | None]] = []
        self._c: Any = None  # the list for C

    def add(self, operation: str, x: Any, *, out: Any = None,
            counts: Sequence[int] | None = None, receive_counts: Sequence[int] | None = None,
            reduction: str = "sum", root: int | None = None, dtype: DTypeLike | None = None,
            tensor: Tensor | None = None, prescale: float = 1.0, state_scale: float = 1.0,
            priority: int = 0, recipe: str | None = None) -> Batch:
        """Adds an operation by its name: a method of Group ("all_reduce", "all_gather" and so on),
        which has the arguments. `root` is for the operations that have one, 0 unless given. Where
        an output is a new array, every submission writes the same one.

        `x`, `out`: elements as the method says. `counts`, `receive_counts`: of the ranks' shares.
        `reduction`, `prescale`: of reductions. `dtype`: of raw memory. `tensor`, `recipe`,
        `state_scale`: of a declared tensor; neither factor is 0. `priority`: higher goes first."""
        collective = _COLLECTIVES.get(operation)
        if collective is None:
            raise ValueError(f"operation={operation!r} is none of {', '.join(_COLLECTIVES)}")
        if operation in ("broadcast", "reduce", "gather", "scatter"):
            root = root or 0
        elif root is not None:
            raise ValueError(f"{operation} has no root")
        call = Call(collective, x, out, dtype, tensor, reduction, counts, receive_counts, root,
                    prescale, state_scale, priority, recipe)
        self._list.append((structs.KINDS[operation], prepare(self._group, call), tensor))
        self._c = None
        return self

    def submit(self) -> Ticket:
        """Submits all operations, or none. The ticket is that of all: wait() returns the list of
        what they return, or raises the failure of the first in the list that failed.

        Raises ValueError for an empty batch, InvalidArgumentError with the operation's place for
        one that the library refuses, WouldBlockError as a single operation does."""
        if not self._list:
            raise ValueError("the batch has no operations")
        if self._c is None:
            self._c = (structs.BatchOp * len(self._list))(
                *(structs.BatchOp(kind, 0, ctypes.pointer(prepared.op))
                  for kind, prepared, _ in self._list))
        for _, prepared, tensor in self._list:
            if tensor is not None:
                prepared.op.tensor = tensor._live()
        batch = structs.Batch(ctypes.sizeof(structs.Batch), 0, self._c, len(self._list), None)
        function = self._group.client._library.later("tern_submit_batch")
        results = [prepared.result for _, prepared, _ in self._list]
        keeps = (self._c, tuple(prepared.keeps for _, prepared, _ in self._list))
        return start(self._group, function, (ctypes.byref(batch),), results, keeps)

    def __len__(self) -> int:
        return len(self._list)

    def __repr__(self) -> str:
        return f"<tern.Batch of {len(self)} operations>"
