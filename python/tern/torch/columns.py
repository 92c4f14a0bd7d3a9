"""Where FSDP2 has put each parameter of a module in what it gathers and scatters."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

_log = logging.getLogger("tern")


class Column(NamedTuple):
    """The elements of one parameter in the row of each rank."""

    parameter: str
    begin: int
    end: int


class ColumnsOf:
    """The columns of one module's parameters. FSDP2 does not tell, and so they are read off its own
    objects; where a version of PyTorch has others, nothing is known and all travels exactly."""

    def __init__(self, module: Any, own: str, names: dict[int, str]) -> None:
        """`own`: the module's name in the model. `names`: of parameters, by their id()."""
        self._group: Any = None
        self._parameters: list[_Placed] = []
        try:
            self._group = parameters_of(module)
            if self._group is not None:
                self._parameters = [
                    _Placed(names[id(each.sharded_param)], each.padded_sharded_param_size.numel(),
                            each.sharded_param) for each in self._group.fsdp_params]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._group = None
            _log.warning("compress: this PyTorch (%s) keeps parameters in another way (%r); the "
                         "module %s (%s) travels exactly. Versions that were tried: docs/torch.md",
                         torch.__version__, error, own or "itself", type(module).__name__)

    @property
    def names(self) -> list[str]:
        """Of the parameters whose place is known."""
        return [each.name for each in self._parameters]

    def gathered(self, row: int) -> list[Column]:
        return _columns(self._parameters, row)

    def scattered(self, row: int) -> list[Column]:
        """Of the parameters that are trained."""
        order = getattr(self._group, "_reduce_scatter_param_indices", None)
        placed = [self._parameters[index] for index in order] if order else self._parameters
        return _columns([each for each in placed if each.parameter.requires_grad], row)


class _Placed(NamedTuple):
    """A parameter, with the elements of a shard."""

    name: str
    size: int
    parameter: torch.Tensor


def parameters_of(module: Any) -> Any:
    """FSDP2's own object of the parameters of a sharded module. None where all are of modules
    within, which have been sharded before. Raises AttributeError and ValueError in a version of
    PyTorch that has others, and where there are several, one for each mesh: PyTorch refuses to be
    told how these travel."""
    state = module._get_fsdp_state()
    group, = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return group


def _columns(placed: Sequence[_Placed], row: int) -> list[Column]:
    """Empty where a row has another length than all of these have together: some had no
    gradient."""
    columns, begin = [], 0
    for each in placed:
        columns.append(Column(each.name, begin, begin + each.size))
        begin += each.size
    return columns if begin == row else []


def runs(columns: Sequence[Column], alone: Sequence[Column]) -> list[Column]:
    """The columns, of which those that are not to be alone are joined with their neighbours."""
    joined: list[Column] = []
    for column in columns:
        if column not in alone and joined and joined[-1] not in alone:
            joined[-1] = joined[-1]._replace(end=column.end)
        else:
            joined.append(column)
    return joined
