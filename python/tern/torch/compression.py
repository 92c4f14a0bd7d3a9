"""Compression of a model in one line, and of one of DistributedDataParallel."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload

import torch
import torch.distributed as dist
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from ..cuda import DeviceStats
from ..errors import TernError
from ..statistics import TensorStats
from ..tensor import Tensor
from . import checkpoints
from .declared_names import declared_name, name_among
from .device_buckets import DeviceBuckets
from .exemption import Rule, averaged_parameters, reasons
from .failures import as_torch
from .gains import Gains, Traffic
from .grouping import submissions_of
from .host_buckets import HostBuckets
from .loss_scales import LossScales
from .on_device import device_buckets
from .replicas import ReplicatedCompression
from .sharded import ShardedCompression, is_sharded

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

_log = logging.getLogger("tern")


@overload
def compress(model: DistributedDataParallel, recipe: str = ..., level: str = ...,
             exempt: Rule | Sequence[str] | None = ..., *, scaler: Any = ...,
             gather_recipe: None = ..., replicas: None = ..., name: str = ...) -> Compression: ...


@overload
def compress(model: FSDPModule, recipe: str = ..., level: str = ...,
             exempt: Rule | Sequence[str] | None = ..., *, scaler: Any = ...,
             gather_recipe: str | None = ..., replicas: None = ...,
             name: str = ...) -> ShardedCompression: ...


@overload
def compress(model: FSDPModule, recipe: str = ..., level: str = ...,
             exempt: Rule | Sequence[str] | None = ..., *, scaler: Any = ...,
             gather_recipe: None = ..., replicas: dist.ProcessGroup,
             name: str = ...) -> ReplicatedCompression: ...


def compress(model: Any, recipe: str = "auto", level: str = "balanced",
             exempt: Rule | Sequence[str] | None = None, *, scaler: Any = None,
             gather_recipe: str | None = None, replicas: dist.ProcessGroup | None = None,
             name: str = "ddp") -> Compression | ShardedCompression | ReplicatedCompression:
    """From now on the gradients of `model` are averaged by Tern, and compressed between nodes.

    Call it on all ranks, after DistributedDataParallel() or fully_shard() and before the first
    step. The model may use any backend; with another one than "tern", Tern averages the gradients
    alone, and of a model of fully_shard() it gathers the weights too.

    `recipe`: how gradients travel (docs/codecs.md); "auto" lets the daemon choose for the link.
    `level`: of "auto", how much may be lost; where the link is too fast to gain, a line of the log
    says so after a hundred steps. `exempt`: what stays exact. None: small tensors,
    biases and normalizations; patterns of names are exempt beside these; a rule, called with name
    and parameter, decides alone. `scaler`: the torch.amp.GradScaler, if there is one: what the
    recipe remembers follows its scale. `gather_recipe`: how the weights of a model of fully_shard()
    travel that are large enough; None: exactly. `replicas`: where each node has all of a model of
    fully_shard(), the group of the ranks that have this rank's shard on all nodes; Tern averages
    between them, and FSDP2 gathers and scatters inside of the node as ever. `name`: of the model
    among those of the job, the same in every run.

    Returns what has the state for checkpoints and the figures. Raises BadRecipeError,
    AlreadyExistsError (two models of one name), QuotaExceededError; RuntimeError if the model has
    another hook. With `replicas` raises ValueError on all of them if the model has another hook, or
    if they have different shards of it. Of a model of fully_shard() the first step raises what
    concerns recipes and declarations.
    """
    if is_sharded(model) and replicas is not None:
        if gather_recipe is not None:
            raise ValueError("with replicas= weights stay on their nodes: leave out gather_recipe=")
        replicated = ReplicatedCompression(model, recipe, level, exempt, scaler=scaler,
                                           replicas=replicas, name=name)
        _log.info("%s", replicated.describe())
        return replicated
    if is_sharded(model):
        sharded = ShardedCompression(model, recipe, level, exempt, scaler=scaler,
                                     gather_recipe=gather_recipe, name=name)
        _log.info("%s", sharded.describe())
        return sharded
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"compress() takes a model of DistributedDataParallel() or fully_shard(), "
                        f"not a {type(model).__name__}: wrap the model first")
    if gather_recipe is not None:
        raise ValueError("DistributedDataParallel gathers no weights: leave out gather_recipe=")
    if replicas is not None:
        raise ValueError("the ranks of DistributedDataParallel are replicas: leave out replicas=")
    compression = Compression(model, recipe, level, exempt, scaler=scaler, name=name)
    model.register_comm_hook(_HookState(compression), _hook)
    # What is copied from a GPU is likely not what was wanted.
    _log.log(logging.WARNING if compression.copies else logging.INFO, "%s", compression.describe())
    if model.find_unused_parameters and compression.may_lose:
        _log.warning("compress: with find_unused_parameters=True what a recipe owes to a parameter "
                     "is lost in a step in which no rank uses it: DDP leaves out what arrives then")
    return compression


class Compression:
    """The hook of one model: a declared tensor for each parameter that may lose values.

    The tensors are named for the parameters. What a recipe owes a parameter therefore stays with
    it when DDP orders its buckets anew. Thread: any.
    """

    def __init__(self, model: DistributedDataParallel, recipe: str, level: str,
                 exempt: Rule | Sequence[str] | None, *, scaler: Any, name: str) -> None:
        self._recipe, self._level = recipe, level
        parameters = averaged_parameters(model)
        self._reasons = {own: reason for own, reason in reasons(model.module, exempt).items()
                         if own in parameters}
        self._raw_bytes = {own: parameter.numel() * parameter.element_size()
                           for own, parameter in parameters.items()}
        self._submissions = submissions_of(model.process_group)
        self._scales = LossScales(scaler)
        self._name = name_among(name, model.process_group)
        self._trained = {own: parameters[own] for own in self._reasons}
        self._copies = False
        self._gains = Gains(self._traffic) if recipe == "auto" else None
        try:
            self._buckets, self._where = self._choose()
        except TernError as error:
            raise as_torch(error) from None

    def _choose(self) -> tuple[DeviceBuckets | HostBuckets, str]:
        """How the buckets travel, and what there is to say of it."""
        lossy = [own for own, reason in self._reasons.items() if not reason]
        on_gpu, why = device_buckets(self._submissions, self._trained,
                                     dict.fromkeys(lossy, self._recipe), self._declare_blocks)
        if on_gpu is not None:
            return on_gpu, "; encoded on the GPU"
        names = {id(parameter): own for own, parameter in self._trained.items()}
        tensors = {own: self._declare(own, self._trained[own]) for own in lossy}
        self._copies = any(parameter.device.type != "cpu" for parameter in self._trained.values())
        return (HostBuckets(self._submissions, names, tensors),
                f"; copied to the processor and encoded there ({why})" if self._copies else "")

    @property
    def copies(self) -> bool:
        """Whether gradients are copied from a GPU to be encoded by the processor."""
        return self._copies

    @property
    def may_lose(self) -> bool:
        """Whether there is a parameter that is compressed."""
        return bool(self._buckets.tensors)

    def describe(self) -> str:
        """One line: what is compressed, how, and what is not and why."""
        tensors = self._buckets.tensors
        lossy = sum(self._raw_bytes[own] for own in tensors)
        every = sum(self._raw_bytes[own] for own in self._reasons)
        kept: dict[str, int] = {}
        for reason in filter(None, self._reasons.values()):
            kept[reason] = kept.get(reason, 0) + 1
        how = f"auto, level {self._level}" if self._recipe == "auto" else self._recipe
        exact = ", ".join(f"{count} {reason}" for reason, count in sorted(kept.items()))
        nodes = self._submissions.group.info().node_count
        return (f"compress: {len(tensors)} of {len(self._reasons)} parameters with "
                f"{lossy / 1e6:.1f} of {every / 1e6:.1f} MB travel by {how}; exact: "
                f"{exact or 'none'}" + ("; all ranks are on one node, which nothing leaves"
                                        if nodes == 1 else f"; {nodes} nodes") + self._where)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Compression belongs to its process, and cannot be copied or pickled: "
                        "save what its state_dict() returns")

    def stats(self) -> dict[str, TensorStats]:
        """What has happened to each compressed parameter on this node, by name."""
        return {own: tensor.stats() for own, tensor in self._buckets.tensors.items()}

    def device_stats(self) -> DeviceStats | None:
        """What the GPU holds and has done for this model; None where the processor encodes."""
        buckets = self._buckets
        return buckets.device.stats() if isinstance(buckets, DeviceBuckets) else None

    def ratio(self) -> float:
        """How many times fewer bytes than raw this node has sent for the compressed parameters; 1
        before the first step, and on one node alone."""
        traffic = self._traffic()
        return traffic.raw / traffic.sent if traffic.sent else 1.0

    def _traffic(self) -> Traffic:
        stats = self.stats().values()
        return Traffic(sum(each.bytes_sent for each in stats),
                       sum(each.bytes_raw for each in stats))

    def state_dict(self) -> dict[str, Any]:
        """This node's part of what the recipes remember, for a checkpoint. Call it on all ranks
        between two steps. It has the size of the gradients in f32 under error feedback.

        A job that goes on with the same nodes needs each node's own part again; one with other
        nodes needs the parts of all.
        """
        try:
            parts = self._buckets.export_state()
        except TernError as error:
            raise as_torch(error) from None
        return checkpoints.state_of(self._submissions, parts, self._scales.state())

    def load_state_dict(self, *states: dict[str, Any]) -> None:
        """Continues with states of state_dict(): that of this node where the nodes are as then,
        else those of all nodes. Call it on all ranks, before the first step.

        From or to one node, where nothing is compressed, the job begins with nothing owed, and a
        warning says so.

        Raises InvalidArgumentError if parts of nodes are missing, StateMismatchError for parts that
        do not fit, ValueError for another model's.
        """
        checkpoints.check_version(states)
        for state in states:
            if set(state["parts"]) != set(self._buckets.tensors):
                odd = sorted(set(state["parts"]) ^ set(self._buckets.tensors))
                raise ValueError("the state is of other parameters than are compressed here: "
                                 f"{', '.join(odd[:5])}. Compress with the same exempt=")
        if checkpoints.can_go_on(self._submissions, [state["nodes"] for state in states]):
            self._import(states)
        self._scales.restore(states[0]["scales"] if states else {})
        checkpoints.wait_for_all(self._submissions)

    def _import(self, states: Sequence[dict[str, Any]]) -> None:
        try:
            self._buckets.import_state({own: [state["parts"][own] for state in states]
                                        for own in self._buckets.tensors})
        except TernError as error:
            raise as_torch(error) from None

    def average(self, bucket: dist.GradBucket) -> Future[torch.Tensor]:
        """Averages a bucket: the hook's work."""
        buffer = bucket.buffer()
        if buffer.layout != torch.strided:
            raise ValueError("sparse gradients cannot be compressed: use dense ones "
                             "(Embedding(sparse=False)), or leave the model as it is")
        if self._gains is not None and bucket.is_last():
            self._gains.count_step()
        return self._buckets.average(bucket, self._scales.growth)

    def _declare(self, own: str, parameter: torch.Tensor) -> Tensor:
        return self._submissions.group.declare(
            declared_name(self._name, own), parameter.numel(),
            str(parameter.dtype).removeprefix("torch."), role="gradient", recipe=self._recipe,
            level=self._level if self._recipe == "auto" else None)

    def _declare_blocks(self, own: str, count: int, recipe: str) -> Tensor:
        return self._submissions.group.declare(
            declared_name(self._name, own), count, role="gradient", recipe=recipe,
            level=self._level if recipe == "auto" else None, client_blocks=True)


class _HookState:
    """What DDP has of a compression. DDP lists it with its hook, and the list goes along when the
    model is copied, as by torch.optim.swa_utils.AveragedModel, or saved."""

    def __init__(self, compression: Compression) -> None:
        self.compression = compression

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        """None: a copy of the model, and one that is loaded, call no hook of the list. They average
        exactly until compress() is called for them."""
        return type(None), ()


def _hook(state: _HookState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    return state.compression.average(bucket)


# DDP compares these with its own classes, and not with their names.
_hook.__annotations__.update({"bucket": dist.GradBucket, "return": Future[torch.Tensor]})
