"""Declared tensors: a name that stays, a role, and the recipe by which values travel."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from . import _structs as structs
from .arrays import dtype_code
from .errors import ClosedError
from .statistics import StepSplit, TensorStats

if TYPE_CHECKING:
    from .arrays import DTypeLike
    from .cuda import BoundTensor
    from .group import Group


class Tensor:
    """A declaration in one group. `group.declare()` makes it; pass it as `tensor=` to operations.

    It ends with release(), with the last reference to it, or with its group. Thread: any.
    """

    def __init__(self, group: Group, options: structs.TensorOptions) -> None:
        self._address: int | None = None
        # By tern.cuda: what is bound, and what ends it where the collector has taken that already.
        self._bound: weakref.ref[BoundTensor] | None = None
        self._first: dict[int, Callable[[], object]] = {}
        self._group = group
        self.name: str = options.name.decode()
        self.count: int = options.count
        self._code: int = options.dtype  # a number of tern_dtype
        self._library = group.client._library
        pointer = ctypes.c_void_p()
        try:
            self._library.check(self._library.tern_tensor_declare(
                group._live(), ctypes.byref(options), ctypes.byref(pointer)))
        finally:
            # Also where a signal's handler raises before the call's end is seen.
            self._address = pointer.value

    def stats(self) -> TensorStats:
        """What has happened to the tensor so far on this node, of all its processes. It asks the
        daemon and waits for its answer: a round trip that an operation does not have. Raises
        ClosedError after release() or the group's end, DaemonLostError, and WaitTimeoutError if the
        daemon does not answer within the client's `timeout`."""
        stats = structs.sized(structs.TensorStats)
        handle, address = self._group._live(), self._live()
        self._library.check(self._library.tern_tensor_get_stats(address, ctypes.byref(stats)))
        del handle  # until here the group, and with it the tensor, could not end
        split = StepSplit(*(getattr(stats, field.name) for field in fields(StepSplit)))
        return TensorStats(self.name, stats.recipe.decode(), stats.ops, stats.bytes_raw,
                           stats.bytes_sent, stats.ratio, stats.residual_ratio,
                           stats.raw_fallbacks, stats.state_bytes, split)

    def export_state(self) -> bytes:
        """This node's part of the state that the recipe keeps between steps, for a checkpoint. All
        ranks of a node get the same part. Raises WouldBlockError while an operation on the tensor
        is in flight."""
        handle, address = self._group._live(), self._live()
        size = ctypes.c_uint64()
        self._library.check(self._library.tern_tensor_state_bytes(address, ctypes.byref(size)))
        part = ctypes.create_string_buffer(size.value)
        self._library.check(self._library.tern_tensor_export_state(
            address, part, size.value, ctypes.byref(size)))
        del handle
        return part.raw[:size.value]

    def import_state(self, *parts: bytes) -> None:
        """Replaces the state by parts of export_state(): this node's own where nodes and ranks are
        placed as then, else those of all nodes. Import on every node, and begin no operation before
        all have (a barrier). Raises StateMismatchError for parts that do not fit."""
        handle, address = self._group._live(), self._live()
        self._library.check(self._library.tern_tensor_import_state(address, *parts_for_c(parts)))
        del handle

    def release(self) -> None:
        """Ends the declaration. Operations in flight keep the tensor until they end; those on a GPU
        must have ended, or it raises WouldBlockError."""
        bound = None if self._bound is None else self._bound()
        if bound is not None:
            bound.release()
        for end in list(self._first.values()):
            end()
        address, self._address = self._address, None
        handle = self._group._handle
        if address is not None and handle is not None and not handle.ended:
            self._library.tern_tensor_release(address)

    def __del__(self) -> None:
        self.release()

    def _live(self) -> int:
        if self._address is None:
            raise ClosedError(f"the tensor {self.name} has been released; declare it again")
        return self._address


def parts_for_c(parts: Sequence[bytes]) -> tuple[Any, Any, int]:
    """Pointers to the parts, their sizes and their number, as a function of C takes them."""
    count = len(parts)
    pointers = (ctypes.c_void_p * count)(
        *(ctypes.cast(ctypes.c_char_p(part), ctypes.c_void_p) for part in parts))
    return pointers, (ctypes.c_uint64 * count)(*map(len, parts)), count


def declaration(name: str, count: int, dtype: DTypeLike, role: str) -> structs.TensorOptions:
    """The options that every declaration has."""
    if role not in structs.ROLES:
        raise ValueError(f"role={role!r} is none of {', '.join(structs.ROLES)}")
    options = structs.sized(structs.TensorOptions)
    options.name, options.count = name.encode(), count
    options.dtype, options.role = dtype_code(dtype), structs.ROLES[role]
    return options
