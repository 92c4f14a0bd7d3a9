"""Finds libtern_cuda, and gives its functions their signatures. The structs are those of
tern/cuda.h; a test compares every offset with C."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from ctypes import POINTER, c_char_p, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any

from . import _structs as structs
from ._library import library
from .errors import LibraryError, failure


class CudaOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("operations", ctypes.c_uint32),
        ("driver", ctypes.c_char_p),
        ("image", ctypes.c_void_p),
    ]


class CudaStats(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("device_bytes", ctypes.c_uint64),
        ("pinned_bytes", ctypes.c_uint64),
        ("pinning_failures", ctypes.c_uint64),
        ("operations", ctypes.c_uint64),
        ("failures", ctypes.c_uint64),
        ("raw_fallbacks", ctypes.c_uint64),
        ("processor_blocks", ctypes.c_uint64),
        ("encode_ns", ctypes.c_uint64),
        ("decode_ns", ctypes.c_uint64),
    ]


class CudaOp(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reduction", ctypes.c_int),
        ("input", ctypes.c_uint64),
        ("output", ctypes.c_uint64),
        ("state_scale", ctypes.c_float),
        ("priority", ctypes.c_int32),
        ("no_wait", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


# By their names in tern/cuda.h.
SIZED = {
    "tern_cuda_options": CudaOptions,
    "tern_cuda_stats": CudaStats,
    "tern_cuda_op": CudaOp,
}

_SIGNATURES: dict[str, list[Any]] = {
    "tern_cuda_open": [c_void_p, POINTER(CudaOptions), POINTER(c_void_p)],
    "tern_cuda_close": [c_void_p],
    "tern_cuda_get_stats": [c_void_p, POINTER(CudaStats)],
    "tern_cuda_tensor_bind": [c_void_p, c_void_p, c_void_p, POINTER(c_void_p)],
    "tern_cuda_tensor_release": [c_void_p],
    "tern_cuda_tensor_export_state": [c_void_p, c_void_p, c_uint64, POINTER(c_uint64)],
    "tern_cuda_tensor_import_state": [c_void_p, POINTER(c_void_p), POINTER(c_uint64), c_uint32],
    "tern_cuda_all_reduce": [c_void_p, POINTER(CudaOp), c_void_p, POINTER(c_uint64)],
    "tern_cuda_wait": [c_void_p, c_uint64, c_int64],
    "tern_cuda_cancel": [c_void_p, c_uint64],
}


class CudaLibrary:
    """libtern_cuda with typed functions. Thread: any."""

    def __init__(self, path: str) -> None:
        self._tern = library()  # in the process before it: the library needs its symbols
        try:
            self._c = ctypes.CDLL(path)
            self._c.tern_cuda_error_detail.restype = c_char_p
            for name, arguments in _SIGNATURES.items():
                function = getattr(self._c, name)
                function.argtypes = arguments
                function.restype = ctypes.c_int32
        except (OSError, AttributeError) as error:
            raise LibraryError(f"{path} cannot be used as libtern_cuda: {error}. Install the "
                               "package libtern-cuda1, or set TERN_CUDA_LIBRARY") from error

    def call(self, name: str, *arguments: Any) -> int:
        """The status of a function, whose failure is to be asked for in the same thread."""
        status: int = getattr(self._c, name)(*arguments)
        return status

    def call_for(self, statuses: list[int], name: str, *arguments: Any) -> None:
        """Adds the status of a function that says something once. No statement lies between the
        call and that, where a signal's handler would raise."""
        statuses.extend(map(getattr(self._c, name), *((argument,) for argument in arguments)))

    def check(self, name: str, *arguments: Any) -> None:
        """Calls a function, and raises its failure."""
        status = self.call(name, *arguments)
        if status != structs.OK:
            raise self.failure(status)

    def failure(self, status: int) -> Exception:
        detail = self._c.tern_cuda_error_detail().decode(errors="replace")
        return failure(status, self._tern.status_text(status), detail)


def _path() -> str:
    """Where it is: as the user says, else beside libtern, else where the system has it."""
    said = os.environ.get("TERN_CUDA_LIBRARY")
    if said:
        return said
    beside = pathlib.Path(library().path).parent / "libtern_cuda.so.1"
    return str(beside) if beside.exists() else "libtern_cuda.so.1"


@functools.lru_cache(maxsize=1)
def cuda_library() -> CudaLibrary:
    """libtern_cuda, loaded on first use. Raises LibraryError where there is none."""
    return CudaLibrary(_path())
