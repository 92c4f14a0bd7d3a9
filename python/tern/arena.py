"""NumPy arrays in the client's arena, which the daemon reads and writes in place."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from ._handle import Handle
from ._library import Library
from .arrays import Array


class _Block:
    """Memory of tern_alloc. NumPy keeps it as the base of the array and of all its views, so it is
    given back when the last of these goes. It keeps the connection, for the memory is mapped only
    as long as that is open."""

    def __init__(self, library: Library, connection: Handle, size: int) -> None:
        memory = ctypes.c_void_p()
        library.check(library.tern_alloc(connection, size, ctypes.byref(memory)))
        self._free = library.tern_free
        self._connection = connection
        self._address = memory.value
        self.__array_interface__ = {
            "version": 3, "shape": (size,), "typestr": "|u1", "data": (memory.value, False)}

    def __del__(self) -> None:
        # Without an address tern_alloc has failed.
        if getattr(self, "_address", None) and not self._connection.ended:
            self._free(self._connection, self._address)


def empty(library: Library, connection: Handle, shape: tuple[int, ...],
          dtype: np.dtype[Any]) -> Array:
    """See Client.empty()."""
    size = math.prod(shape) * dtype.itemsize
    # The arena gives out no empty memory; an array without elements takes one byte.
    block = np.asarray(_Block(library, connection, max(size, 1)))
    return block[:size].view(dtype).reshape(shape)
