"""Tensors as the arrays that Tern's collectives take: the same memory, looked at.

NumPy has no bfloat16 and no 8-bit floats. A tensor of bfloat16 is given as 16-bit integers, with
the name of the type. What is only moved may be of any type, and is given as bytes where Tern does
not carry the type.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import torch

from ..arrays import Array

_CARRIED = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
            torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
            *(getattr(torch, name) for name in ("uint16", "uint32", "uint64")
              if hasattr(torch, name))}


class View(NamedTuple):
    """`array`: a tensor's memory in one dimension. `dtype`: of its elements where the array cannot
    say it, else None. `scale`: how many of the array's elements are one of the tensor's."""

    array: Array
    dtype: str | None
    scale: int


def check(tensor: Any, what: str) -> torch.Tensor:
    """Refuses what has no plain memory on the processor's side."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} is a {type(tensor).__name__}; it must be a tensor")
    if tensor.layout != torch.strided:
        raise ValueError(f"{what} has the layout {tensor.layout}: Tern moves dense tensors; only "
                         "all_reduce by SUM takes sparse ones")
    if tensor.device.type != "cpu":
        raise ValueError(f"{what} is on {tensor.device}: Tern takes tensors in the processor's "
                         "memory and dense ones on CUDA devices. Use tensor.cpu()")
    return tensor


class _Elements:
    """Keeps a tensor for NumPy, which looks at its elements. Tensor.numpy() would do so too, but
    makes the tensor's storage unresizable for good."""

    def __init__(self, flat: Any, dtype: Any) -> None:
        self._flat = flat
        self.__array_interface__ = {
            "version": 3, "shape": (flat.numel(),), "typestr": dtype.str,
            "data": (flat.data_ptr(), False)}


@functools.cache
def _dtype_of(dtype: Any) -> Any:
    return np.dtype(str(dtype).removeprefix("torch."))


def _array(flat: Any) -> Array:
    dtype = _dtype_of(flat.dtype)
    if flat.numel() == 0:
        return np.empty(0, dtype)
    return np.asarray(_Elements(flat, dtype))


def view(tensor: Any, what: str, moved: bool = False) -> View:
    """Looks at a contiguous tensor. `moved`: its elements are not computed with.

    Raises TypeError for a type that Tern does not carry, ValueError for a tensor that is not
    contiguous, without memory, a view to be conjugated or negated, or on another device.
    """
    flat = check(tensor, what).detach()
    if flat.is_conj() or flat.is_neg():
        done, way = ("conjugated", "conj") if flat.is_conj() else ("negated", "neg")
        raise ValueError(f"{what} is a view that is {done} only when it is read: pass "
                         f"tensor.resolve_{way}(), and copy a result back yourself")
    if not flat.is_contiguous():
        raise ValueError(f"{what}, of shape {tuple(flat.shape)} and strides {flat.stride()}, is "
                         "not contiguous: pass tensor.contiguous(), and copy a result back "
                         "yourself")
    if flat.numel() > 0 and flat.untyped_storage().data_ptr() == 0:
        raise ValueError(f"{what} has no memory of its own: it was freed, or it is a wrapper "
                         "around other tensors")
    flat = flat.view(-1)
    if flat.dtype == torch.bfloat16:
        return View(_array(flat.view(torch.int16)), "bfloat16", 1)
    if flat.dtype in _CARRIED:
        return View(_array(flat), None, 1)
    if moved:
        return View(_array(flat.view(torch.uint8)), None, flat.element_size())
    raise TypeError(f"{what} is of {flat.dtype}, in which Tern does not compute; it reduces "
                    f"{', '.join(sorted(str(dtype)[6:] for dtype in _CARRIED))}. Convert it first")
