"""Compression between the replicas of a model that FSDP2 shards inside of a node.

The ranks of a node share the model. Each has a shard of every parameter, and the ranks that have
the same shard on all nodes are a group: these are replicas of each other. FSDP2 scatters gradients
inside of the node, and calls a hook with the shard's. The hook averages it with the replicas': each
parameter that may lose values as a declared tensor of its own, all others together and exactly.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..cuda import BoundTensor, DeviceStats
from ..errors import TernError, UnsupportedError
from ..statistics import TensorStats
from ..tensor import Tensor
from . import checkpoints, on_device
from .columns import Column, ColumnsOf
from .exemption import Rule, reasons
from .failures import as_torch
from .gains import Gains, Traffic
from .grouping import submissions_of
from .loss_scales import LossScales
from .shard_averages import DeviceShards, EndOfBackward, HostShards, Shards
from .sharded import is_replicated, is_sharded
from .submissions import Submissions
from .votes import first_reason, said_by_all

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_log = logging.getLogger("tern")


class ReplicatedCompression:
    """The averages of all modules of one model over its replicas. Thread: that of the training."""

    def __init__(self, model: Any, recipe: str, level: str, exempt: Rule | Sequence[str] | None, *,
                 scaler: Any, replicas: Any, name: str) -> None:
        self._name, self._recipe = name, recipe
        self._level = level if recipe == "auto" else None
        self._reasons = reasons(model, exempt)
        self._submissions = submissions_of(replicas)
        _check_shards(self._submissions, model, dist.get_process_group_ranks(replicas))
        self._gpu = on_device.GroupOnDevice(self._submissions)
        self._scales = LossScales(scaler)
        self._loaded = checkpoints.LateStates()
        self._tensors: dict[str, Tensor | BoundTensor] = {}
        self._gains = Gains(self._traffic) if recipe == "auto" else None
        self._first_averaged: object = None
        self._end = EndOfBackward()
        self._placed: set[str] = set()
        names = {id(parameter): own for own, parameter in model.named_parameters()}
        for own, module in model.named_modules():
            if is_sharded(module):
                order = ColumnsOf(module, own, names)
                _set_hook(module, _Hook(self, own, order))
                self._placed.update(order.names)

    def describe(self) -> str:
        """One line: what is compressed, and how."""
        lossy = sum(not reason and own in self._placed for own, reason in self._reasons.items())
        how = f"auto, level {self._level}" if self._recipe == "auto" else self._recipe
        info = self._submissions.group.info()
        return (f"compress: gradients of {lossy} of {len(self._reasons)} sharded parameters travel "
                f"by {how} between {info.size} replicas on {info.node_count} nodes")

    def stats(self) -> dict[str, TensorStats]:
        """What has happened to each compressed parameter on this node, by name. Empty before the
        first step."""
        return {own: _declared(tensor).stats() for own, tensor in self._tensors.items()}

    def device_stats(self) -> DeviceStats | None:
        """What the GPU holds and has done for this model; None where the processor encodes, and
        before the first step."""
        return self._gpu.device.stats() if self._gpu.device is not None else None

    def ratio(self) -> float:
        """How many times fewer bytes than raw this node has sent for what is compressed."""
        traffic = self._traffic()
        return traffic.raw / traffic.sent if traffic.sent else 1.0

    def state_dict(self) -> dict[str, Any]:
        """What the recipes of this rank's shards remember on this node, for a checkpoint. Call it
        on all ranks between two steps, after the first. It has the size of the shards' gradients in
        f32 under error feedback.

        A job that goes on with the same nodes and shards needs each rank's own state again. One
        with other nodes needs, on each rank, the states of all ranks that had its shard. Raises
        RuntimeError before the first step.
        """
        if not self._tensors:
            raise RuntimeError("before the first step no recipe has anything to remember: save the "
                               "state after a step")
        try:
            parts = {own: tensor.export_state() for own, tensor in self._tensors.items()}
        except TernError as error:
            raise as_torch(error) from None
        counts = {own: tensor.count for own, tensor in self._tensors.items()}
        return (checkpoints.state_of(self._submissions, parts, self._scales.state())
                | {"counts": counts})

    def load_state_dict(self, *states: dict[str, Any]) -> None:
        """Continues with states of state_dict(): this rank's own where the nodes are as then, else
        those of all ranks that had its shard. Call it on all ranks, before the first step, in which
        the state is imported.

        From or to one node, where nothing is compressed, the job begins with nothing owed; a
        parameter that other shards make larger or smaller does so too. A warning says so.

        Raises RuntimeError after the first step, and ValueError for the state of another version or
        another model's. The step raises InvalidArgumentError if states of nodes are missing,
        StateMismatchError for parts that do not fit.
        """
        if self._tensors:
            raise RuntimeError("load the state before the first step")
        checkpoints.check_version(states)
        for state in states:
            odd = sorted(own for own in state["parts"] if not self.may_lose(own))
            if odd:
                raise ValueError("the state is of other parameters than are compressed here: "
                                 f"{', '.join(odd[:5])}. Compress with the same exempt=")
        self._loaded = checkpoints.LateStates(states)
        self._scales.restore(states[0]["scales"] if states else {})

    def may_lose(self, parameter: str) -> bool:
        return not self._reasons.get(parameter, "unknown")

    def average(self, shards: Shards, row: torch.Tensor, columns: Sequence[Column]) -> None:
        shards.average(row, *self._parted(columns), self._scales.growth)

    def average_exactly(self, row: torch.Tensor) -> None:
        """All of it."""
        HostShards(self._submissions, {}).average(row, [], [Column("", 0, row.numel())],
                                                  self._scales.growth)

    def count_average(self, of: object) -> None:
        """A module's gradients are averaged, once in each step."""
        if self._first_averaged is None:
            self._first_averaged = of
        if self._gains is not None and of is self._first_averaged:
            self._gains.count_step()

    def shards(self, own: str, columns: Sequence[Column], row: torch.Tensor) -> Shards:
        """What averages rows of the module `own` with these columns, in any order. The same on all
        ranks, who all call it."""
        lossy, exact = self._parted(columns)
        wanted = {column.parameter: on_device.Wanted(column.end - column.begin, self._recipe)
                  for column in lossy}
        together = on_device.EXACT + own
        if exact:
            count = sum(column.end - column.begin for column in exact)
            wanted[together] = on_device.Wanted(count, "raw")
        bound, why = self._gpu.bind(wanted, self._declare_blocks, {row.device}, {row.dtype})
        if not bound:
            self._tell(own, row, why)
            tensors = {column.parameter: self._declare(column, row) for column in lossy}
            self._note(tensors)
            return HostShards(self._submissions, tensors)
        joined = bound.pop(together, None)
        self._note(bound)
        return DeviceShards(bound, joined, on_device.streams_of(row.device), row, self._end)

    def _parted(self, columns: Sequence[Column]) -> tuple[list[Column], list[Column]]:
        """Those that may lose values, and those that may not."""
        lossy = [column for column in columns if self.may_lose(column.parameter)]
        return lossy, [column for column in columns if column not in lossy]

    def _note(self, tensors: Mapping[str, Tensor | BoundTensor]) -> None:
        """They have what a checkpoint has of them from now on."""
        for own, tensor in tensors.items():
            self._tensors[own] = tensor
            self._loaded.give(self._submissions, own, tensor)

    def _tell(self, own: str, row: torch.Tensor, why: str) -> None:
        # What is copied from a GPU is likely not what was wanted.
        if row.device.type != "cpu":
            _log.warning("compress: gradients of the module %s are copied to the processor and "
                         "encoded there (%s)", own or "itself", why)

    def _traffic(self) -> Traffic:
        stats = self.stats().values()
        return Traffic(sum(each.bytes_sent for each in stats),
                       sum(each.bytes_raw for each in stats))

    def _declare(self, column: Column, row: torch.Tensor) -> Tensor:
        return self._submissions.group.declare(
            f"{self._name}/{column.parameter}", column.end - column.begin,
            str(row.dtype).removeprefix("torch."), role="gradient", recipe=self._recipe,
            level=self._level)

    def _declare_blocks(self, own: str, count: int, recipe: str) -> Tensor:
        return self._submissions.group.declare(f"{self._name}/{own}", count, role="gradient",
                                               recipe=recipe, client_blocks=True)


class _Hook:
    """What FSDP2 calls with the gradients of a module's shard, which it averages in place."""

    def __init__(self, owner: ReplicatedCompression, own: str, order: ColumnsOf) -> None:
        self._owner, self._own, self._order = owner, own, order
        self._shards: Shards | None = None

    def __call__(self, row: torch.Tensor) -> None:
        columns = self._order.scattered(row.numel())
        try:
            self._owner.count_average(self)
            if not any(self._owner.may_lose(column.parameter) for column in columns):
                self._owner.average_exactly(row)
                return
            if self._shards is None:
                self._shards = self._owner.shards(self._own, columns, row)
            self._owner.average(self._shards, row, columns)
        except TernError as error:
            raise as_torch(error) from None


def _declared(tensor: Tensor | BoundTensor) -> Tensor:
    return tensor.tensor if isinstance(tensor, BoundTensor) else tensor


def _check_shards(submissions: Submissions, model: Any, replicas: Sequence[int]) -> None:
    """Raises ValueError on all ranks unless they have the same shards of the model, and nothing
    else averages these between them. `replicas`: their numbers in the job."""
    from torch.distributed.tensor import DTensor  # it takes seconds, and is there by now

    parameters = [each for each in model.parameters() if isinstance(each, DTensor)]
    why = first_reason(submissions, _objection(parameters, set(replicas)))
    if why:
        raise ValueError(why)
    mesh = parameters[0].device_mesh
    shards = said_by_all(submissions, f"{list(mesh.get_coordinate() or ())} of {list(mesh.shape)}")
    if len(set(shards)) > 1:
        raise ValueError("replicas= has ranks with different shards of the model "
                         f"({', '.join(sorted(set(shards)))}): it takes the ranks that have the "
                         "same shard on all nodes")


def _objection(parameters: Sequence[DTensor], replicas: set[int]) -> str:
    if not parameters:
        return "no parameter of the model is sharded: call fully_shard() first"
    for parameter in parameters:
        mesh = parameter.device_mesh
        if is_replicated(parameter):
            return ("fully_shard() itself averages between replicas, by its mesh of several "
                    'dimensions: give it the mesh of a node alone, as mesh["shard"]')
        if len(replicas.intersection(mesh.mesh.flatten().tolist())) > 1:
            return ("replicas= has ranks that share the model with each other: it takes the ranks "
                    "that have the same shard on all nodes")
    return ""


def _set_hook(module: Any, hook: _Hook) -> None:
    try:
        module.set_all_reduce_hook(hook)
    except AttributeError as error:
        raise as_torch(UnsupportedError(
            f"this PyTorch ({torch.__version__}) lets nobody else average for fully_shard() "
            f"({error}): use 2.9 or a later one, or leave the model as it is")) from None
