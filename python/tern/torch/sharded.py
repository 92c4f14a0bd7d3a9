"""Compression of a model that FSDP2 shards: what its modules gather and scatter.

A module's gradients come as one tensor, a row for each rank, in which every parameter has the same
columns. Each parameter that may lose values travels as a declared tensor of its own, named for the
parameter; all others travel together and exactly.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..errors import TernError, UnsupportedError
from ..statistics import TensorStats
from ..tensor import Tensor
from . import checkpoints
from .batches import Batches
from .columns import Column, ColumnsOf, runs
from .declared_names import declared_name, name_among
from .exemption import Rule, reasons
from .failures import as_torch
from .gains import Gains, Traffic
from .grouping import submissions_of
from .loss_scales import LossScales
from .operands import view
from .reduced_module import ReducedModule
from .reductions import Reduction, reduction_of
from .staging import through_host
from .submissions import Submissions, scatter_out
from .work import TernWork

_log = logging.getLogger("tern")
_GRADIENT, _WEIGHTS = "gradient", "weights"


def is_sharded(model: Any) -> bool:
    """Whether fully_shard() has been applied to it. Imports nothing."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return isinstance(model, getattr(fsdp, "FSDPModule", ()))


class ShardedCompression:
    """The gathers and scatters of all modules of one model. Thread: that of the training."""

    def __init__(self, model: Any, recipe: str, level: str, exempt: Rule | Sequence[str] | None, *,
                 scaler: Any, gather_recipe: str | None, name: str) -> None:
        self._name, self._recipe, self._gather_recipe = name, recipe, gather_recipe
        self._level = level if recipe == "auto" else None
        self._reasons = reasons(model, exempt)
        self._names = {id(parameter): own for own, parameter in model.named_parameters()}
        self._placed: set[str] = set()
        self._groups: dict[int, tuple[Any, Submissions]] = {}
        self._names_among: dict[Submissions, str] = {}
        self._tensors: dict[str, Tensor] = {}
        self._scales = LossScales(scaler)
        self._loaded = checkpoints.LateStates()
        self._gains = Gains(self._traffic) if recipe == "auto" else None
        self._first_scattered: ColumnsOf | None = None
        if any(is_sharded(module) and ReducedModule(module).is_replicated
               for module in model.modules()):
            _log.warning("compress: between replicas fully_shard() averages by its own mesh, "
                         "exactly. To compress there, shard the model over the mesh of a node, and "
                         "give compress() the others' as replicas=")
        for own, module in model.named_modules():
            if is_sharded(module):
                order = ColumnsOf(module, own, self._names)
                try:
                    module.set_custom_reduce_scatter(_ReduceScatter(self, order))
                    module.set_custom_all_gather(_AllGather(self, order))
                except AttributeError as error:
                    raise as_torch(UnsupportedError(
                        f"this PyTorch ({torch.__version__}) lets nobody else gather and scatter "
                        f"for fully_shard() ({error}): use 2.9 or a later one, or leave the model "
                        "as it is")) from None
                self._placed.update(order.names)

    def describe(self) -> str:
        """One line: what is compressed, and how."""
        lossy = sum(not reason and own in self._placed for own, reason in self._reasons.items())
        gathers = f"weights by {self._gather_recipe}" if self._gather_recipe else "weights exactly"
        how = f"auto, level {self._level}" if self._recipe == "auto" else self._recipe
        return (f"compress: gradients of {lossy} of {len(self._reasons)} sharded parameters travel "
                f"by {how}, {gathers}")

    def stats(self) -> dict[str, TensorStats]:
        """What has happened on this node, by "gradient/PARAMETER" and "weights/PARAMETER". Empty
        before the first step."""
        return {own: tensor.stats() for own, tensor in self._tensors.items()}

    def ratio(self) -> float:
        """How many times fewer bytes than raw this node has sent for what is compressed."""
        stats = self.stats().values()
        sent = sum(each.bytes_sent for each in stats)
        return sum(each.bytes_raw for each in stats) / sent if sent else 1.0

    def state_dict(self) -> dict[str, Any]:
        """This node's part of what the recipes remember, for a checkpoint. Call it on all ranks
        between two steps, after the first. It has the size of the gradients in f32 under error
        feedback.

        A job that goes on with the same nodes needs each node's own part again; one with other
        nodes needs the parts of all. Raises RuntimeError before the first step.
        """
        if not self._groups:
            raise RuntimeError("before the first step no recipe has anything to remember: save the "
                               "state after a step")
        submissions = next(iter(self._groups.values()))[1]
        try:
            parts = {key: tensor.export_state() for key, tensor in self._tensors.items()}
        except TernError as error:
            raise as_torch(error) from None
        waiting, counts = self._loaded.waiting()
        counts |= {key: tensor.count for key, tensor in self._tensors.items()}
        return (checkpoints.state_of(submissions, waiting | parts, self._scales.state())
                | {"counts": counts})

    def load_state_dict(self, *states: dict[str, Any]) -> None:
        """Continues with states of state_dict(): that of this node where the nodes are as then,
        else those of all nodes. Call it on all ranks, before the first step, in which the state is
        imported: each parameter's when the parameter is first used.

        From or to one node, where nothing is compressed, the job begins with nothing owed; a
        parameter that other shards make larger or smaller does so too. A warning says so.

        Raises RuntimeError after the first step, and ValueError for the state of another version or
        another model's.
        The step raises InvalidArgumentError if parts of nodes are missing, StateMismatchError for
        parts that do not fit.
        """
        if self._tensors:
            raise RuntimeError("load the state before the first step")
        checkpoints.check_version(states)
        checkpoints.check_parameters(states, self._may_have, "exempt= and gather_recipe=")
        self._loaded = checkpoints.LateStates(states)
        self._scales.restore(states[0]["scales"] if states else {})

    def submissions_of(self, group: Any) -> Submissions:
        if id(group) not in self._groups:
            submissions = submissions_of(group)
            self._groups[id(group)] = group, submissions
            self._names_among[submissions] = name_among(self._name, group)
        return self._groups[id(group)][1]

    def may_lose(self, parameter: str) -> bool:
        return not self._reasons.get(parameter, "unknown")

    def count_step(self, scattered: ColumnsOf) -> None:
        """The gradients of a module are scattered, once in each step."""
        if self._first_scattered is None:
            self._first_scattered = scattered
        if self._gains is not None and scattered is self._first_scattered:
            self._gains.count_step()

    def growth(self, parameter: str) -> float:
        """By how much a loss scale has made the gradients of this parameter grow."""
        return self._scales.growth(parameter)

    def gradient(self, group: Submissions, column: Column, example: torch.Tensor) -> Tensor:
        return self._declared(group, _GRADIENT, column, example, self._recipe, self._level)

    def weights(self, group: Submissions, column: Column, example: torch.Tensor) -> Tensor:
        return self._declared(group, _WEIGHTS, column, example, self._gather_recipe, None)

    @property
    def gathers_lossily(self) -> bool:
        return self._gather_recipe is not None

    def _may_have(self, key: str) -> bool:
        """Whether there may be a tensor of this name."""
        kind, _, parameter = key.partition("/")
        return self.may_lose(parameter) and (
            kind == _GRADIENT or (kind == _WEIGHTS and self.gathers_lossily))

    def _traffic(self) -> Traffic:
        stats = [tensor.stats() for key, tensor in self._tensors.items()
                 if key.startswith(_GRADIENT)]
        return Traffic(sum(each.bytes_sent for each in stats),
                       sum(each.bytes_raw for each in stats))

    def _declared(self, submissions: Submissions, kind: str, column: Column, example: torch.Tensor,
                  recipe: str | None, level: str | None) -> Tensor:
        """The tensor of this parameter, declared when it is first used: by then FSDP2 has decided
        on types and orders."""
        key = f"{kind}/{column.parameter}"
        group = submissions.group
        count = (column.end - column.begin) * group.size
        known = self._tensors.get(key)
        if known is None or known.count != count:
            if known is not None:
                known.release()
                _log.warning("compress: %s is sharded anew; what its recipe owed is forgotten", key)
            tensor = group.declare(
                declared_name(self._names_among[submissions], key), count,
                str(example.dtype).removeprefix("torch."),
                role="gradient" if kind == _GRADIENT else "delta", recipe=recipe, level=level)
            self._tensors[key] = tensor
            self._loaded.give(submissions, key, tensor)
        return self._tensors[key]


class _Comm:
    """What FSDP2 calls in place of a collective: its memory comes from the arena."""

    def __init__(self, owner: ShardedCompression, order: ColumnsOf) -> None:
        self._owner, self._order = owner, order
        self._submissions: Submissions | None = None

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype,
                 device: torch.device) -> torch.Tensor:
        """Memory that the daemon reads and writes in place, once the group is known."""
        count = 1
        for each in size:
            count *= int(each)
        if self._submissions is None or device.type != "cpu":
            return torch.empty(count, dtype=dtype, device=device)
        return self._submissions.buffer(count, dtype)

    def _submissions_of(self, group: Any) -> Submissions:
        if self._submissions is None:
            self._submissions = self._owner.submissions_of(group)
        return self._submissions


def _run(submissions: Submissions, name: str, batch: Batches, finish: Callable[[], None],
         result: torch.Tensor, async_op: bool) -> TernWork | None:
    work = submissions.start(name, batch.calls(), [result], finish=finish)
    if async_op:
        return work
    work.wait()
    return None


class _ReduceScatter(_Comm):
    @through_host
    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any,
                 op: Any, async_op: bool = False) -> dist.Work | None:
        submissions = self._submissions_of(group)
        self._owner.count_step(self._order)
        columns = self._order.scattered(output_tensor.numel())
        lossy = [column for column in columns if self._owner.may_lose(column.parameter)]
        exact = [column for column in columns if column not in lossy]
        reduction = reduction_of(op, input_tensor.dtype)
        if reduction.factor is not None:
            input_tensor = input_tensor * reduction.factor
        batch = Batches(submissions.group)
        finish: Callable[[], None] = _nothing
        if not lossy:
            self._add(batch, input_tensor, output_tensor, reduction)
        else:
            rows = input_tensor.view(submissions.group.size, -1)
            for column in lossy:
                self._add(batch, _taken(submissions, rows, [column]),
                          output_tensor[column.begin:column.end], reduction,
                          tensor=self._owner.gradient(submissions, column, input_tensor),
                          state_scale=self._owner.growth(column.parameter))
            if exact:
                parts = [output_tensor[column.begin:column.end] for column in exact]
                joined = submissions.buffer(sum(map(torch.numel, parts)), output_tensor.dtype)
                self._add(batch, _taken(submissions, rows, exact), joined, reduction)
                finish = functools.partial(scatter_out, joined, parts)

        return _run(submissions, "reduce_scatter", batch, finish, output_tensor, async_op)

    @staticmethod
    def _add(batch: Batches, source: torch.Tensor, output: torch.Tensor, reduction: Reduction,
             tensor: Tensor | None = None, state_scale: float = 1.0) -> None:
        x, out = view(source, "the gradients"), view(output, "their shard")
        batch.add("reduce_scatter", x.array, out=out.array, reduction=reduction.name,
                  dtype=x.dtype, tensor=tensor, state_scale=state_scale)


class _AllGather(_Comm):
    @through_host
    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any,
                 async_op: bool = False) -> dist.Work | None:
        submissions = self._submissions_of(group)
        lossy = []
        if self._owner.gathers_lossily and input_tensor.dtype != torch.uint8:
            lossy = [column for column in self._order.gathered(input_tensor.numel())
                     if self._owner.may_lose(column.parameter)]
        batch = Batches(submissions.group)
        x, out = view(input_tensor, "the shard", moved=True), view(
            output_tensor, "the weights", moved=True)
        if not lossy:
            batch.add("all_gather", x.array, out=out.array, dtype=x.dtype)
            return _run(submissions, "all_gather", batch, _nothing, output_tensor, async_op)
        rows = output_tensor.view(submissions.group.size, -1)
        gathered = []
        for part in runs(self._order.gathered(input_tensor.numel()), lossy):
            source = input_tensor[part.begin:part.end]
            whole = submissions.buffer(source.numel() * submissions.group.size, source.dtype)
            seen, target = view(source, "a shard"), view(whole, "the weights")
            tensor = self._owner.weights(submissions, part, source) if part in lossy else None
            batch.add("all_gather", seen.array, out=target.array, dtype=seen.dtype, tensor=tensor)
            gathered.append((rows[:, part.begin:part.end], whole))

        def finish() -> None:
            with torch.no_grad():
                for place, whole in gathered:
                    place.copy_(whole.view(place.shape))

        return _run(submissions, "all_gather", batch, finish, output_tensor, async_op)


def _nothing() -> None:
    pass


def _taken(submissions: Submissions, rows: torch.Tensor,
           columns: Sequence[Column]) -> torch.Tensor:
    """The columns of all rows, row after row, in a buffer."""
    width = sum(column.end - column.begin for column in columns)
    buffer = submissions.buffer(len(rows) * width, rows.dtype)
    begin = 0
    for column in columns:
        size = column.end - column.begin
        buffer.view(len(rows), width)[:, begin:begin + size].copy_(
            rows[:, column.begin:column.end])
        begin += size
    return buffer
