"""NumPy arrays in the client's arena, or in regions beside it, which the daemon reads and writes in
place."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ._handle import Handle
from ._library import Library
from .arrays import Array


class _Block:
    """Memory that `take` gives, as tern_alloc does. NumPy keeps it as the base of the array and of
    all its views, so it is given back when the last of these goes. It keeps the connection, for the
    memory is mapped only as long as that is open."""

    def __init__(self, library: Library, connection: Handle, take: Callable[..., int],
                 size: int) -> None:
        memory = ctypes.c_void_p()
        library.check(take(connection, size, ctypes.byref(memory)))
        self._free = library.tern_free
        self._connection = connection
        self._address = memory.value
        self.__array_interface__ = {
            "version": 3, "shape": (size,), "typestr": "|u1", "data": (memory.value, False)}

    def __del__(self) -> None:
        # Without an address the call has failed.
        if getattr(self, "_address", None) and not self._connection.ended:
            self._free(self._connection, self._address)


def empty(library: Library, connection: Handle, shape: tuple[int, ...],
          dtype: np.dtype[Any]) -> Array:
    """See Client.empty()."""
    block = _Block(library, connection, library.tern_alloc, _bytes(shape, dtype))
    return _array(block, shape, dtype)


def region(library: Library, connection: Handle, shape: tuple[int, ...],
           dtype: np.dtype[Any]) -> Array:
    """See Client.region()."""
    create = library.later("tern_region_create")
    return _array(_Block(library, connection, create, _bytes(shape, dtype)), shape, dtype)


def _bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    # No empty memory is given out; an array without elements takes one byte.
    return max(math.prod(shape) * dtype.itemsize, 1)


def _array(block: _Block, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    size = math.prod(shape) * dtype.itemsize
    return np.asarray(block)[:size].view(dtype).reshape(shape)
