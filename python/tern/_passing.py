"""Sends and recvs: from one rank to one other."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import _structs as structs
from . import arrays
from ._submit import start

if TYPE_CHECKING:
    from .arrays import DTypeLike
    from .group import Group
    from .ticket import Ticket

_TAGS = 1 << 32


class Received:
    """What a recv has received, once its ticket has succeeded."""

    __slots__ = ("_struct",)

    def __init__(self) -> None:
        self._struct = structs.sized(structs.Received)

    @property
    def source(self) -> int:
        """The rank that has sent it."""
        return int(self._struct.source)

    @property
    def count(self) -> int:
        """How many elements came: at most as many as there was room for."""
        return int(self._struct.count)

    def __repr__(self) -> str:
        return f"<tern.Received {self.count} elements of rank {self.source}>"


def send(group: Group, x: Any, dest: int, tag: int, dtype: DTypeLike | None,
         recipe: str | None) -> Ticket:
    _check(group, dest, tag)
    source = arrays.operand(x, dtype)
    op = structs.sized(structs.Op)
    op.dtype, op.input, op.count = source.code, source.address, source.elements
    op.peer, op.tag = dest, tag
    op.recipe = None if recipe is None else recipe.encode()
    function = group.client._library.collective("send")
    return start(group, function, (ctypes.byref(op),), None, (source,))


def recv(group: Group, x: Any, source: int | None, tag: int, dtype: DTypeLike | None,
         recipe: str | None) -> Ticket:
    _check(group, source, tag)
    target = arrays.output(x, dtype)
    received = Received()
    op = structs.sized(structs.Op)
    op.dtype, op.output, op.count = target.code, target.address, target.elements
    op.peer, op.tag = structs.ANY_SOURCE if source is None else source, tag
    op.recipe = None if recipe is None else recipe.encode()
    op.received = ctypes.addressof(received._struct)
    function = group.client._library.collective("recv")
    return start(group, function, (ctypes.byref(op),), received, (target,))


def _check(group: Group, peer: int | None, tag: int) -> None:
    if peer is not None and not 0 <= peer < group.size:
        raise ValueError(f"{peer} is no rank of a group of {group.size}")
    if not 0 <= tag < _TAGS:
        raise ValueError(f"tag={tag} is not in 0..{_TAGS - 1}")
