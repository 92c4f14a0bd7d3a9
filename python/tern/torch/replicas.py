"""Compression between the replicas of a model that FSDP2 shards inside of a node.

The ranks of a node share the model. Each has a shard of every parameter, and the ranks that have
the same shard on all nodes are a group: these are replicas of each other. FSDP2 scatters gradients
inside of the node, and calls a hook with the shard's. The hook averages it with the replicas': each
parameter that may lose values as a declared tensor of its own, all others together and exactly.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..cuda import BoundTensor, DeviceStats
from ..errors import TernError, UnsupportedError
from ..statistics import TensorStats
from ..tensor import Tensor
from . import checkpoints, on_device
from .columns import Column, ColumnsOf
from .declared_names import declared_name, name_among
from .device_starts import Streams
from .exemption import Rule, reasons
from .failures import as_torch
from .gains import Gains, Traffic
from .grouping import submissions_of
from .loss_scales import LossScales
from .reduced_module import ReducedModule
from .shard_averages import DeviceShards, EndOfBackward, HostShards, Row, Shards
from .sharded import is_sharded
from .submissions import Submissions
from .votes import first_reason, said_by_all

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_log = logging.getLogger("tern")


class ReplicatedCompression:
    """The averages of all modules of one model over its replicas. Thread: that of the training."""

    def __init__(self, model: Any, recipe: str, level: str, exempt: Rule | Sequence[str] | None, *,
                 scaler: Any, replicas: Any, name: str) -> None:
        self._recipe = recipe
        self._level = level if recipe == "auto" else None
        self._reasons = reasons(model, exempt)
        modules = [(own, module) for own, module in model.named_modules() if is_sharded(module)]
        if dist.get_rank(replicas) < 0:
            raise ValueError("replicas= is a group that this rank is not in: each rank gives the "
                             "group of its own shard, as mesh[\"replicas\"].get_group()")
        self._submissions = submissions_of(replicas)
        names = {id(parameter): own for own, parameter in model.named_parameters()}
        orders = [ColumnsOf(module, own, names) for own, module in modules]
        self._shard = _agreed_shard(self._submissions, model, modules,
                                    set(dist.get_process_group_ranks(replicas)))
        self._name = name_among(name, replicas, self._shard["place"])
        for order in orders:
            for own in order.names:
                declared_name(self._name, own)
        self._gpu = on_device.GroupOnDevice(self._submissions)
        self._streams: Streams | None = None  # once something is encoded on the GPU
        self._scales = LossScales(scaler)
        self._loaded = checkpoints.LateStates()
        self._tensors: dict[str, Tensor | BoundTensor] = {}
        self._gains = Gains(self._traffic) if recipe == "auto" else None
        self._first_averaged: object = None
        self._end = EndOfBackward()
        self._placed = {own for order in orders for own in order.names}
        for (own, module), order in zip(modules, orders):
            _set_hook(module, _Hook(self, own, order, ReducedModule(module)))

    def describe(self) -> str:
        """One line: what is compressed, and how."""
        lossy = sum(not reason and own in self._placed for own, reason in self._reasons.items())
        how = f"auto, level {self._level}" if self._recipe == "auto" else self._recipe
        info = self._submissions.group.info()
        if self.is_alone:
            return "compress: there is one replica of the model, and nothing to average"
        return (f"compress: gradients of {lossy} of {len(self._reasons)} sharded parameters travel "
                f"by {how} between {info.size} replicas on {info.node_count} nodes")

    @property
    def is_alone(self) -> bool:
        """Whether the group has one rank."""
        return self._submissions.group.size == 1

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
        if self._first_averaged is None:
            raise RuntimeError("before the first step no recipe has anything to remember: save the "
                               "state after a step")
        waiting, counts = self._loaded.waiting()
        try:
            parts = {own: tensor.export_state() for own, tensor in self._tensors.items()}
        except TernError as error:
            raise as_torch(error) from None
        counts |= {own: tensor.count for own, tensor in self._tensors.items()}
        return (checkpoints.state_of(self._submissions, waiting | parts, self._scales.state())
                | {"counts": counts, "shard": self._shard})

    def load_state_dict(self, *states: dict[str, Any]) -> None:
        """Continues with states of state_dict(): this rank's own where the nodes are as then, else
        those of all ranks that had its shard. Call it on all ranks, before the first step, in which
        the state is imported.

        From or to one node, where nothing is compressed, the job begins with nothing owed; a
        parameter that other shards make larger or smaller does so too. A warning says so.

        Raises RuntimeError after the first step, and ValueError for the state of another version,
        another model's or another shard's. The step raises InvalidArgumentError if states of nodes
        are missing, StateMismatchError for parts that do not fit.
        """
        if self._first_averaged is not None:
            raise RuntimeError("load the state before the first step")
        checkpoints.check_version(states)
        checkpoints.check_parameters(states, self.may_lose, "exempt=")
        for state in states:
            if state["shard"] != self._shard and state["shard"]["of"] == self._shard["of"]:
                raise ValueError(f"the state is of shard {state['shard']['place']}, and this rank "
                                 f"has {self._shard['place']}, of {self._shard['of']}: each rank "
                                 "loads the states of its own shard")
        self._loaded = checkpoints.LateStates(states)
        self._scales.restore(states[0]["scales"] if states else {})

    def may_lose(self, parameter: str) -> bool:
        return not self._reasons.get(parameter, "unknown")

    def row(self, values: torch.Tensor, columns: Sequence[Column], module: ReducedModule) -> Row:
        """`columns`: none if nothing is known of the row, which then travels exactly."""
        every = columns or [Column("", 0, values.numel())]
        lossy = [column for column in every if self.may_lose(column.parameter)]
        return Row(values, lossy, [column for column in every if column not in lossy],
                   "sum" if module.sums else "average", module.reads_at_once(values))

    def average(self, shards: Shards, row: Row) -> None:
        shards.average(row, self._scales.growth)

    def count_average(self, of: object) -> None:
        """A module's gradients are averaged, once in each step."""
        if self._first_averaged is None:
            self._first_averaged = of
        if self._gains is not None and of is self._first_averaged:
            self._gains.count_step()

    def exact_shards(self) -> Shards:
        """What averages rows of which nothing is known."""
        return HostShards(self._submissions, {})

    def shards(self, own: str, row: Row) -> Shards:
        """What averages rows of the module `own` with the columns of this one, in any order. The
        same on all ranks, who all call it."""
        wanted = {column.parameter: on_device.Wanted(column.end - column.begin, self._recipe)
                  for column in row.lossy}
        together = on_device.EXACT + own
        if row.exact:
            count = sum(column.end - column.begin for column in row.exact)
            wanted[together] = on_device.Wanted(count, "raw")
        # To pin memory may wait for what is under way.
        self._end.wait_for_all()
        values = row.values
        bound, why = self._gpu.bind(wanted, self._declare_blocks, {values.device}, {values.dtype})
        if not bound:
            self._tell(own, values, why)
            tensors = {column.parameter: self._declare(column, values) for column in row.lossy}
            self._note(tensors)
            return HostShards(self._submissions, tensors)
        joined = bound.pop(together, None)
        self._note(bound)
        if self._streams is None:
            self._streams = on_device.streams_of(values.device)
        return DeviceShards(bound, joined, self._streams, values, self._end)

    def release(self, shards: Shards, parameters: Iterable[str]) -> None:
        self._end.wait_for_all()
        shards.release()
        for own in parameters:
            self._tensors.pop(own, None)

    def _note(self, tensors: Mapping[str, Tensor | BoundTensor]) -> None:
        """They have what a checkpoint has of them from now on."""
        for own, tensor in tensors.items():
            self._tensors[own] = tensor
            self._loaded.give(self._submissions, own, tensor)

    def _tell(self, own: str, values: torch.Tensor, why: str) -> None:
        # What is copied from a GPU is likely not what was wanted.
        if values.device.type != "cpu":
            _log.warning("compress: gradients of the module %s are copied to the processor and "
                         "encoded there (%s)", own or "itself", why)

    def _traffic(self) -> Traffic:
        stats = self.stats().values()
        return Traffic(sum(each.bytes_sent for each in stats),
                       sum(each.bytes_raw for each in stats))

    def _declare(self, column: Column, values: torch.Tensor) -> Tensor:
        return self._submissions.group.declare(
            declared_name(self._name, column.parameter), column.end - column.begin,
            str(values.dtype).removeprefix("torch."), role="gradient", recipe=self._recipe,
            level=self._level)

    def _declare_blocks(self, own: str, count: int, recipe: str) -> Tensor:
        return self._submissions.group.declare(
            declared_name(self._name, own), count, role="gradient", recipe=recipe,
            level=self._level if recipe == "auto" else None, client_blocks=True)


class _Hook:
    """What FSDP2 calls with the gradients of a module's shard, which it averages in place."""

    def __init__(self, owner: ReplicatedCompression, own: str, order: ColumnsOf,
                 module: ReducedModule) -> None:
        self._owner, self._own, self._order, self._module = owner, own, order, module
        self._parameters: set[str] = set()
        self._shards: Shards | None = None
        self._unknown: Shards | None = None

    def __call__(self, values: torch.Tensor) -> None:
        self._owner.count_average(self)
        if self._owner.is_alone:
            return
        columns = self._order.scattered(values.numel())
        row = self._owner.row(values, columns, self._module)
        if values.is_cuda:
            # It belongs to another stream, which may take it back while this one still uses it.
            values.record_stream(torch.cuda.current_stream(values.device))
        try:
            self._owner.average(self._shards_of(columns, row), row)
        except TernError as error:
            raise as_torch(error) from None

    def _shards_of(self, columns: Sequence[Column], row: Row) -> Shards:
        if columns:
            parameters = {column.parameter for column in columns}
            if self._shards is not None and parameters != self._parameters:
                _log.warning("compress: other parameters of the module %s are trained than before; "
                             "what its recipe owed is forgotten", self._own or "itself")
                self._owner.release(self._shards, self._parameters)
                self._shards = None
            if self._shards is None:
                self._shards, self._parameters = self._owner.shards(self._own, row), parameters
            return self._shards
        if self._unknown is None:
            self._unknown = self._owner.exact_shards()
            if self._order.names:
                _log.warning("compress: gradients of the module %s travel exactly in steps in "
                             "which not all of its parameters have one", self._own or "itself")
        return self._unknown


def _declared(tensor: Tensor | BoundTensor) -> Tensor:
    return tensor.tensor if isinstance(tensor, BoundTensor) else tensor


def _agreed_shard(submissions: Submissions, model: Any, modules: Sequence[tuple[str, Any]],
                  replicas: set[int]) -> dict[str, str]:
    """Which shard of the model all ranks of the group have. Raises ValueError on all of them unless
    it is one, and no other hook is there. `replicas`: their numbers in the job."""
    from torch.distributed.tensor import DTensor  # it takes seconds, and is there by now

    parameters = {own: each for own, each in model.named_parameters() if isinstance(each, DTensor)}
    why = first_reason(submissions, _objection(parameters, modules, replicas))
    if why:
        raise ValueError(why)
    places = {own: _place_of(each.device_mesh) for own, each in parameters.items()}
    place, of = next(iter(places.values()))
    said = f"{place} of {of}, {hashlib.sha256(repr(places).encode()).hexdigest()[:16]}"
    different = sorted(set(said_by_all(submissions, said)))
    if len(different) > 1:
        raise ValueError("replicas= has ranks with different shards of the model (the first "
                         f"parameter's, and a digest of all: {'; '.join(different)}): it takes "
                         "the ranks that have the same shard on all nodes")
    return {"place": said, "of": of}


def _place_of(mesh: Any) -> tuple[str, str]:
    """Of this rank in the mesh of a parameter, and the shape of that."""
    return str(list(mesh.get_coordinate() or ())), str(list(mesh.shape))


def _objection(parameters: Mapping[str, DTensor], modules: Sequence[tuple[str, Any]],
               replicas: set[int]) -> str:
    if not parameters:
        return "no parameter of the model is sharded: call fully_shard() first"
    for own, module in modules:
        reduced = ReducedModule(module)
        if reduced.is_replicated:
            return (f"fully_shard() itself averages the module {own or 'itself'} between replicas, "
                    'by a mesh of several dimensions: give it that of a node alone, mesh["shards"]')
        if reduced.has_hook:
            return (f"the module {own or 'itself'} has an all-reduce hook already, of the program "
                    "or of another compress()")
    for parameter in parameters.values():
        if len(replicas.intersection(parameter.device_mesh.mesh.flatten().tolist())) > 1:
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
