"""Which reduction of Tern a torch.distributed.ReduceOp is, for elements of a type."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist

_NAMES = ((dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.AVG, "average"),
          (dist.ReduceOp.PRODUCT, "product"), (dist.ReduceOp.MIN, "min"),
          (dist.ReduceOp.MAX, "max"), (dist.ReduceOp.BAND, "and"), (dist.ReduceOp.BOR, "or"),
          (dist.ReduceOp.BXOR, "xor"), (dist.ReduceOp.PREMUL_SUM, "sum"))

# A boolean is 0 or 1, and a sum that is not 0 is true: as NCCL has it.
_OF_BOOL = {"sum": "or", "max": "or", "product": "and", "min": "and"}


class Reduction(NamedTuple):
    """`name`: as Tern calls it. `factor`: the inputs are multiplied by it first, or None."""

    name: str
    factor: float | torch.Tensor | None


def reduction_of(op: Any, dtype: torch.dtype) -> Reduction:
    """Of a ReduceOp, for elements of `dtype`. Raises ValueError for what Tern cannot reduce."""
    name = next((name for known, name in _NAMES if op == known), None)
    if name is None:
        raise ValueError(f"{op} is no reduction that Tern has; use SUM, AVG, PRODUCT, MIN, MAX, "
                         "BAND, BOR, BXOR or PREMUL_SUM")
    if name == "average" and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"AVG of {dtype}: an average of whole numbers is none; reduce by SUM and "
                         "divide as you need")
    if dtype.is_floating_point and name in ("and", "or", "xor"):
        raise ValueError(f"{op} of {dtype}: bits are combined for integers and booleans only")
    if dtype == torch.bool:
        name = _OF_BOOL.get(name, name)
    return Reduction(name, _factor(op) if op == dist.ReduceOp.PREMUL_SUM else None)


def _factor(op: Any) -> float | torch.Tensor:
    """Of a PREMUL_SUM. Before PyTorch 2.15 only its pickle has it."""
    found: float | torch.Tensor = op.factor if hasattr(op, "factor") else op.__getstate__()[1]
    return found
