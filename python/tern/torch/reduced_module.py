"""What FSDP2 does with a module's gradients around its all-reduce hook, as far as it keeps that in
its own objects. Where a version of PyTorch keeps it otherwise, the cautious answer is given."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .columns import parameters_of


class ReducedModule:
    """One module that fully_shard() has been applied to."""

    def __init__(self, module: Any) -> None:
        self._group: Any = None
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            self._group = parameters_of(module)

    @property
    def is_replicated(self) -> bool:
        """Whether FSDP2 itself averages between replicas, by a mesh of several dimensions."""
        mesh = getattr(self._group, "mesh_info", None)
        return int(getattr(mesh, "replicate_mesh_size", 1)) > 1

    @property
    def has_hook(self) -> bool:
        return getattr(self._group, "_all_reduce_hook", None) is not None

    @property
    def sums(self) -> bool:
        """Whether the program divides gradients itself, by set_gradient_divide_factor(): then
        replicas are summed, as FSDP2 does."""
        return getattr(self._group, "gradient_divide_factor", None) is not None

    def reads_at_once(self, row: torch.Tensor) -> bool:
        """Whether FSDP2, or what hangs on its gradients, computes with the row behind the hook.
        Otherwise gradients become views of it, and nobody reads it before the end of
        backward()."""
        parameters = getattr(self._group, "fsdp_params", None)
        if parameters is None or getattr(self._group, "force_sum_reduction_for_comms", True):
            return True
        return any(_is_read(each, row) for each in parameters)


def _is_read(owner: Any, row: torch.Tensor) -> bool:
    """It is cast, copied to another device, added to a gradient, or seen by a hook. `owner`:
    FSDP2's own object of a parameter."""
    parameter = owner.sharded_param
    # From PyTorch 2.15 on gradients may have a type of their own, or any.
    wanted = getattr(owner, "sharded_grad_dtype", parameter.dtype) or row.dtype
    return bool(parameter.requires_grad and (
        parameter.grad is not None or wanted != row.dtype or parameter.device != row.device
        or getattr(parameter, "_post_accumulate_grad_hooks", None)))
