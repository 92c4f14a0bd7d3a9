"""Which parameters of a model stay exact when the others are compressed."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Below this, and so says the daemon's setting lossy_min_bytes, a tensor travels as it is anyway.
SMALL_BYTES = 8 << 10
_LOSSY_TYPES = (torch.float32, torch.float16, torch.bfloat16)
_NORMS = tuple(kind for kind in (
    nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm,
    getattr(nn, "RMSNorm", None)) if kind is not None)

Rule = Callable[[str, torch.Tensor], bool]


def reasons(model: nn.Module, exempt: Rule | Sequence[str] | None) -> dict[str, str]:
    """For each parameter that is trained, by name: why it stays exact, or "" if it need not.

    `exempt`: patterns of names, as "embed*", that stay exact beside what does by itself (small
    tensors, biases, what a normalization learns, types that no recipe takes); or a rule that gets
    name and parameter and replaces all but the last.
    """
    norms = {id(parameter) for module in model.modules()
             if isinstance(module, _NORMS) or "norm" in type(module).__name__.lower()
             for parameter in module.parameters(recurse=False)}
    return {name: _reason(name, parameter, id(parameter) in norms, exempt)
            for name, parameter in model.named_parameters() if parameter.requires_grad}


def averaged_parameters(model: DistributedDataParallel) -> dict[str, nn.Parameter]:
    """Those that DDP has not been told to ignore, by their names in the model that it wraps.

    DDP looks in its list for the names of each module's own parameters. Therefore it averages one
    that several modules have if one of its names is not there, and one of the outermost module
    unless its name is there with a dot before it.
    """
    averaged = {id(parameter) for module_name, module in model.module.named_modules()
                for own, parameter in module.named_parameters(recurse=False)
                if f"{module_name}.{own}" not in model.parameters_to_ignore}
    return {name: parameter for name, parameter in model.module.named_parameters()
            if id(parameter) in averaged}


def _reason(name: str, parameter: torch.Tensor, of_norm: bool,
            exempt: Rule | Sequence[str] | None) -> str:
    if parameter.dtype not in _LOSSY_TYPES:
        return f"{str(parameter.dtype).removeprefix('torch.')} is never compressed"
    if callable(exempt):
        return "exempt by your rule" if exempt(name, parameter) else ""
    for pattern in exempt or ():
        if fnmatch.fnmatchcase(name, pattern):
            return f"exempt by your pattern {pattern}"
    if of_norm:
        return "of a normalization"
    if name.rpartition(".")[2] == "bias":
        return "a bias"
    if parameter.numel() * parameter.element_size() < SMALL_BYTES:
        return "small"
    return ""
