"""Reads what a DLPack capsule says of a tensor, and leaves the capsule as it is.

numpy.from_dlpack() would make a read-only array of most tensors and knows no bfloat16. Here the
capsule is kept while the memory is used; it gives the tensor back when it is freed.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

_CPU = 1
_CPU_SIDE = (_CPU, 3)  # kDLCPU, kDLCUDAHost: pinned memory that the processor reads as its own
_READ_ONLY = 1
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32),
                ("dtype", _DataType), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


class View(NamedTuple):
    owner: object
    address: int
    shape: tuple[int, ...]
    dtype: str
    contiguous: bool
    writable: bool


def _capsule_of(x: Any) -> Any:
    try:
        return x.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer from before version 1.0
        return x.__dlpack__()


def _pointer(capsule: Any, name: bytes) -> int | None:
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    if not api.PyCapsule_IsValid(capsule, name):
        return None
    found: int | None = api.PyCapsule_GetPointer(capsule, name)
    return found


def _contiguous(tensor: _Tensor, shape: tuple[int, ...]) -> bool:
    if not tensor.strides or 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(tensor.strides[:tensor.ndim])):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def view(x: Any) -> View:
    """What `x.__dlpack__()` says. Raises TypeError for memory of a device."""
    device = x.__dlpack_device__()[0]
    if device not in _CPU_SIDE:
        raise TypeError("the tensor is in a device's memory; copy it to the processor's first")
    capsule = _capsule_of(x)
    versioned = _pointer(capsule, b"dltensor_versioned")
    read_only = False
    if versioned is not None:
        managed = _Versioned.from_address(versioned)
        tensor, read_only = managed.tensor, bool(managed.flags & _READ_ONLY)
    else:
        plain = _pointer(capsule, b"dltensor")
        if plain is None:
            raise TypeError(f"{type(x).__name__} gives no DLPack tensor")
        tensor = _Tensor.from_address(plain)
    shape = tuple(tensor.shape[:tensor.ndim])
    kind, lanes = _KINDS.get(tensor.dtype.code, "unknown"), tensor.dtype.lanes
    # A boolean is a byte, and has no size in its name.
    name = kind if kind == "bool" and tensor.dtype.bits == 8 else f"{kind}{tensor.dtype.bits}"
    dtype = name + (f"x{lanes}" if lanes != 1 else "")
    return View(capsule, (tensor.data or 0) + tensor.byte_offset, shape, dtype,
                _contiguous(tensor, shape), not read_only)
