"""What a collective reads and writes: NumPy arrays, DLPack tensors and buffers as plain memory.

An operand is looked at, never copied: it must be contiguous in C order, of a type that Tern
carries, and in this machine's byte order. Floats, integers, booleans and complex numbers have NumPy
types of their own. bfloat16 comes from ml_dtypes, from DLPack, or as 16-bit integers with
dtype="bfloat16".
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _dlpack

Array = npt.NDArray[Any]
if TYPE_CHECKING:
    DTypeLike = str | npt.DTypeLike

_NO_BYTES = ctypes.c_char * 0

# The names of the types that travel, with the numbers of tern_dtype and the bytes of an element.
_CODES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int64": 4, "int32": 5,
          "uint8": 6, "bool": 7, "int8": 8, "int16": 9, "complex64": 12, "complex128": 13,
          "uint16": 14, "uint32": 15, "uint64": 16}
_SHORT_NAMES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16",
                "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u64": "uint64",
                "u32": "uint32", "u16": "uint16", "u8": "uint8", "c64": "complex64",
                "c128": "complex128"}
_BYTES = {code: 2 if name == "bfloat16" else np.dtype(name).itemsize
          for name, code in _CODES.items()}
_NUMPY_CODES: dict[Any, int] = {
    np.dtype(name): code for name, code in _CODES.items() if name != "bfloat16"}


def dtype_code(dtype: DTypeLike) -> int:
    """The number of a type given as `float32`, `f32`, `bfloat16` or a NumPy dtype. Raises TypeError
    for a type that Tern does not carry."""
    if isinstance(dtype, str):
        name = _SHORT_NAMES.get(dtype, dtype)
        if name in _CODES:
            return _CODES[name]
    code = _code_of_numpy(np.dtype(dtype))
    if code is None:
        raise _not_carried(np.dtype(dtype))
    return code


def numpy_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """The NumPy type that holds such elements. bfloat16 is that of ml_dtypes, or uint16 where
    ml_dtypes is not installed."""
    if dtype_code(dtype) != _CODES["bfloat16"]:
        return np.dtype(_SHORT_NAMES.get(dtype, dtype) if isinstance(dtype, str) else dtype)
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def _code_of_numpy(dtype: np.dtype[Any]) -> int | None:
    code = _NUMPY_CODES.get(dtype)
    if code is None and dtype.name == "bfloat16" and dtype.isnative:
        code = _NUMPY_CODES[dtype] = _CODES["bfloat16"]
    return code


def _not_carried(dtype: object) -> TypeError:
    return TypeError(f"Tern does not carry elements of type {dtype}; it carries "
                     f"{', '.join(_CODES)} in this machine's byte order. Convert with astype(), or "
                     "say what the bytes are with dtype=")


class Operand(NamedTuple):
    """Memory of an operation. `owner` keeps it alive; `code` is a number of tern_dtype."""

    owner: Any
    address: int
    elements: int
    code: int
    writable: bool


def operand(x: Any, dtype: DTypeLike | None = None) -> Operand:
    """Looks at `x`: a NumPy array, something with `__dlpack__` in this machine's memory, or a
    buffer. `dtype` says what the elements are where the type of `x` does not; its elements must be
    as large as those of `x`.

    Raises TypeError for what is no array or not carried, ValueError for what is not contiguous.
    """
    if not isinstance(x, np.ndarray):
        seen = _operand_of_dlpack(x) if hasattr(x, "__dlpack__") else None
        return _retyped(seen, dtype) if seen else _operand_of_buffer(x, dtype)
    flags = x.flags
    if not flags.c_contiguous:
        raise ValueError(f"the array of shape {x.shape} is not contiguous: pass "
                         "numpy.ascontiguousarray(x), and copy a result back yourself")
    code = _code_of_numpy(x.dtype) if dtype is None else _code_as(x.dtype, dtype)
    if code is None:
        raise _not_carried(x.dtype)
    writable = flags.writeable
    return Operand(x, _address(x, writable), x.size, code, writable)


def _address(x: Any, writable: bool) -> int:
    if writable:
        try:
            # A quarter of the time of __array_interface__, which tells much more.
            return ctypes.addressof(_NO_BYTES.from_buffer(x))
        except (BufferError, TypeError, ValueError):
            pass  # buffers have no such elements, as bfloat16
    address: int = x.__array_interface__["data"][0]
    return address


def output(x: Any, dtype: DTypeLike | None = None) -> Operand:
    """Like operand(), for memory that an operation writes. Raises ValueError if it is read-only."""
    seen = operand(x, dtype)
    if not seen.writable:
        raise ValueError("the output is read-only: pass a writable array as out=, or a copy")
    return seen


def _code_as(given: np.dtype[Any], dtype: DTypeLike) -> int:
    code = dtype_code(dtype)
    if given.itemsize != _BYTES[code]:
        raise TypeError(f"dtype={dtype} has elements of {_BYTES[code]} bytes, but those of the "
                        f"array, {given}, have {given.itemsize}")
    return code


def _retyped(seen: Operand, dtype: DTypeLike | None) -> Operand:
    if dtype is None:
        return seen
    code = dtype_code(dtype)
    if _BYTES[code] != _BYTES[seen.code]:
        raise TypeError(f"dtype={dtype} has elements of {_BYTES[code]} bytes, but those of the "
                        f"tensor have {_BYTES[seen.code]}")
    return seen._replace(code=code)


def _operand_of_dlpack(x: Any) -> Operand:
    view = _dlpack.view(x)
    code = _CODES.get(view.dtype)
    if code is None:
        raise _not_carried(view.dtype)
    if not view.contiguous:
        raise ValueError(f"the tensor of shape {view.shape} is not contiguous: pass "
                         "x.contiguous(), and copy a result back yourself")
    return Operand((x, view.owner), view.address, math.prod(view.shape), code, view.writable)


def _operand_of_buffer(x: Any, dtype: DTypeLike | None) -> Operand:
    try:
        view = memoryview(x)
    except TypeError:
        raise TypeError(f"{type(x).__name__} is neither a NumPy array nor a DLPack tensor nor a "
                        "buffer") from None
    if not view.c_contiguous:
        raise ValueError("the buffer is not contiguous: pass a contiguous copy")
    return operand(np.asarray(view), dtype)


def name_of(code: int) -> str:
    """The name of a number of tern_dtype, `float32`."""
    return next(name for name, number in _CODES.items() if number == code)
