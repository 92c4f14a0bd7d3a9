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
        self._parameters: list[tuple[str, int]] = []
        try:
            state = module._get_fsdp_state()
            # Of several groups, one for each mesh, PyTorch refuses to be told how they travel.
            self._group, = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
            # None where all parameters are of modules within, which have been sharded before.
            if self._group is not None:
                self._parameters = [
                    (names[id(each.sharded_param)], each.padded_sharded_param_size.numel())
                    for each in self._group.fsdp_params]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._group = None
            _log.warning("compress: this PyTorch (%s) keeps parameters in another way (%r); the "
                         "module %s (%s) travels exactly. Versions that were tried: docs/torch.md",
                         torch.__version__, error, own or "itself", type(module).__name__)

    @property
    def names(self) -> list[str]:
        """Of the parameters whose place is known."""
        return [name for name, _ in self._parameters]

    def gathered(self, row: int) -> list[Column]:
        return self._columns(range(len(self._parameters)), row)

    def scattered(self, row: int) -> list[Column]:
        order = getattr(self._group, "_reduce_scatter_param_indices", None)
        return self._columns(order or range(len(self._parameters)), row)

    def _columns(self, order: Sequence[int], row: int) -> list[Column]:
        """Empty where a row has another length than all parameters have together: some had no
        gradient."""
        columns, begin = [], 0
        for index in order:
            name, size = self._parameters[index]
            columns.append(Column(name, begin, begin + size))
            begin += size
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
