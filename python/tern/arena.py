"""NumPy arrays in the client's arena, or in regions beside it, which the daemon reads and writes in
place."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._handle import Handle
from ._library import Library
from .arrays import Array
from .errors import OutOfMemoryError

_MAX_BYTES = 1 << 62  # more than any machine has, and a number for C


class _Block:
    """Memory that `take` gives, as tern_alloc does. NumPy keeps it as the base of the array and of
    all its views, so it is given back when the last of these goes. It keeps the connection, for the
    memory is mapped only as long as that is open."""

    def __init__(self, library: Library, connection: Handle, take: Callable[..., int],
                 size: int) -> None:
        memory = ctypes.c_void_p()
        self._free = library.tern_free
        self._connection = connection
        try:
            library.check(take(connection, size, ctypes.byref(memory)))
        finally:
            # Also where a signal's handler raises before the call's end is seen.
            self._address = memory.value
        self.__array_interface__ = {
            "version": 3, "shape": (size,), "typestr": "|u1", "data": (memory.value, False)}

    def __del__(self) -> None:
        # Without an address the call has failed.
        if getattr(self, "_address", None) and not self._connection.ended:
            self._free(self._connection, self._address)


def empty(library: Library, connection: Handle, shape: int | Sequence[int],
          dtype: np.dtype[Any]) -> Array:
    """See Client.empty()."""
    return _array(library, connection, library.tern_alloc, shape, dtype)


def region(library: Library, connection: Handle, shape: int | Sequence[int],
           dtype: np.dtype[Any]) -> Array:
    """See Client.region()."""
    return _array(library, connection, library.later("tern_region_create"), shape, dtype)


def _array(library: Library, connection: Handle, take: Callable[..., int],
           shape: int | Sequence[int], dtype: np.dtype[Any]) -> Array:
    sizes = _sizes(shape)
    size = math.prod(sizes) * dtype.itemsize
    if size > _MAX_BYTES:
        raise OutOfMemoryError(f"an array of shape {sizes} has {size} bytes, which no machine has")
    # No empty memory is given out; an array without elements takes one byte.
    block = _Block(library, connection, take, max(size, 1))
    return np.asarray(block)[:size].view(dtype).reshape(sizes)


def _sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Of each dimension. As with NumPy, a single integer is the number of elements."""
    try:
        sizes: tuple[int, ...] = (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        sizes = tuple(map(operator.index, shape))  # type: ignore[arg-type]
    if min(sizes, default=0) < 0:
        raise ValueError(f"shape={shape} has a negative size")
    return sizes
