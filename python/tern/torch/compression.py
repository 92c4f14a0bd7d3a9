"""Compression of a DistributedDataParallel model in one line."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from ..errors import LaunchError, TernError
from ..statistics import TensorStats
from ..tensor import Tensor
from .averages import Averages, Lossy
from .exemption import Rule, reasons
from .failures import as_torch
from .meeting import shared_client
from .process_group import TernProcessGroup
from .submissions import Submissions

_log = logging.getLogger("tern")
_NAME_BYTES = 127  # of a declaration
_STATE_VERSION = 1


def compress(model: DistributedDataParallel, recipe: str = "auto", level: str = "balanced",
             exempt: Rule | Sequence[str] | None = None, *, scaler: Any = None,
             name: str = "ddp") -> Compression:
    """From now on the gradients of `model` are averaged by Tern, and compressed between nodes.

    Call it on all ranks, after DistributedDataParallel() and before the first backward(). The model
    may use any backend; with another one than "tern", Tern averages the gradients alone.

    `recipe`: how gradients travel (docs/codecs.md); "auto" lets the daemon choose for the link.
    `level`: of "auto", how much may be lost. `exempt`: what stays exact. None: small tensors,
    biases and normalizations; patterns of names are exempt beside these; a rule, called with name
    and parameter, decides alone. `scaler`: the torch.amp.GradScaler, if there is one: what the
    recipe remembers follows its scale. `name`: of the model among those of the job, the same in
    every run.

    Returns what has the state for checkpoints and the figures. Raises BadRecipeError,
    AlreadyExistsError (two models of one name), QuotaExceededError; RuntimeError if the model has
    another hook.
    """
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"compress() takes a DistributedDataParallel model, not a "
                        f"{type(model).__name__}: wrap the model first")
    compression = Compression(model, recipe, level, exempt, scaler=scaler, name=name)
    model.register_comm_hook(compression, _hook)
    _log.info("%s", compression.describe())
    return compression


class Compression:
    """The hook of one model: a declared tensor for each parameter that may lose values.

    The tensors are named for the parameters. What a recipe owes a parameter therefore stays with
    it when DDP orders its buckets anew. Thread: any.
    """

    def __init__(self, model: DistributedDataParallel, recipe: str, level: str,
                 exempt: Rule | Sequence[str] | None, *, scaler: Any, name: str) -> None:
        self._recipe, self._level, self._scaler = recipe, level, scaler
        self._names = {id(parameter): own for own, parameter in model.module.named_parameters()}
        self._reasons = reasons(model.module, exempt)
        self._raw_bytes = {own: parameter.numel() * parameter.element_size()
                           for own, parameter in model.module.named_parameters()}
        self._submissions = submissions_of(model.process_group)
        self._scales: dict[str, float] = {}
        # By bucket: memory and parameters, and their averages.
        self._averages: dict[int, tuple[tuple[int, ...], Averages]] = {}
        parameters = dict(model.module.named_parameters())
        try:
            self._tensors = {own: self._declare(name, own, parameters[own])
                             for own, reason in self._reasons.items() if not reason}
        except TernError as error:
            raise as_torch(error) from None

    def describe(self) -> str:
        """One line: what is compressed, how, and what is not and why."""
        lossy = sum(self._raw_bytes[own] for own in self._tensors)
        every = sum(self._raw_bytes[own] for own in self._reasons)
        kept: dict[str, int] = {}
        for reason in filter(None, self._reasons.values()):
            kept[reason] = kept.get(reason, 0) + 1
        how = f"auto, level {self._level}" if self._recipe == "auto" else self._recipe
        exact = ", ".join(f"{count} {reason}" for reason, count in sorted(kept.items()))
        nodes = self._submissions.group.info().node_count
        return (f"compress: {len(self._tensors)} of {len(self._reasons)} parameters with "
                f"{lossy / 1e6:.1f} of {every / 1e6:.1f} MB travel by {how}; exact: "
                f"{exact or 'none'}" + ("; all ranks are on one node, which nothing leaves"
                                        if nodes == 1 else f"; {nodes} nodes"))

    def stats(self) -> dict[str, TensorStats]:
        """What has happened to each compressed parameter on this node, by name."""
        return {own: tensor.stats() for own, tensor in self._tensors.items()}

    def ratio(self) -> float:
        """How many times fewer bytes than raw this node has sent for the compressed parameters; 1
        before the first step, and on one node alone."""
        stats = self.stats().values()
        sent = sum(each.bytes_sent for each in stats)
        return sum(each.bytes_raw for each in stats) / sent if sent else 1.0

    def state_dict(self) -> dict[str, Any]:
        """This node's part of what the recipes remember, for a checkpoint. Call it on all ranks
        between two steps. It has the size of the gradients in f32 under error feedback.

        A job that goes on with the same nodes needs each node's own part again; one with other
        nodes needs the parts of all.
        """
        info = self._submissions.group.info()
        try:
            parts = {own: tensor.export_state() for own, tensor in self._tensors.items()}
        except TernError as error:
            raise as_torch(error) from None
        return {"version": _STATE_VERSION, "node": info.node, "nodes": info.node_count,
                "parts": parts, "scales": dict(self._scales)}

    def load_state_dict(self, *states: dict[str, Any]) -> None:
        """Continues with states of state_dict(): that of this node where the nodes are as then,
        else those of all nodes. Call it on all ranks, before the first step.

        Raises InvalidArgumentError if parts of nodes are missing, StateMismatchError for parts
        that do not fit, ValueError for another model's.
        """
        for state in states:
            if state.get("version") != _STATE_VERSION:
                raise ValueError(f"the state has version {state.get('version')}; this package "
                                 f"reads {_STATE_VERSION}")
            if set(state["parts"]) != set(self._tensors):
                odd = sorted(set(state["parts"]) ^ set(self._tensors))
                raise ValueError("the state is of other parameters than are compressed here: "
                                 f"{', '.join(odd[:5])}. Compress with the same exempt=")
        try:
            for own, tensor in self._tensors.items():
                tensor.import_state(*(state["parts"][own] for state in states))
        except TernError as error:
            raise as_torch(error) from None
        self._scales = dict(states[0]["scales"]) if states else {}
        # No operation may begin before all nodes have imported.
        self._submissions.start("barrier", [self._submissions.group.barrier], []).wait()

    def average(self, bucket: dist.GradBucket) -> Future[torch.Tensor]:
        """Averages a bucket: the hook's work."""
        buffer = bucket.buffer()
        if buffer.layout != torch.strided:
            raise ValueError("sparse gradients cannot be compressed: use dense ones "
                             "(Embedding(sparse=False)), or leave the model as it is")
        host = buffer if buffer.device.type == "cpu" else buffer.cpu()
        averages = self._averages_of(bucket, host)

        def finish() -> None:
            averages.finish()
            if host is not buffer:
                buffer.copy_(host)

        work = self._submissions.start("the average of gradients", averages.calls(), [buffer],
                                       finish=finish)
        return work.get_future().then(lambda done: done.wait()[0])

    def _averages_of(self, bucket: dist.GradBucket, host: torch.Tensor) -> Averages:
        """Those of the bucket in this memory: the last step's where nothing has changed."""
        parameters = bucket.parameters()
        layout = (host.data_ptr(), *map(id, parameters))
        known = self._averages.get(bucket.index())
        if known is not None and known[0] == layout:
            return known[1]
        lossy, exact, begin = [], [], 0
        for parameter in parameters:
            part = host[begin:begin + parameter.numel()]
            begin += parameter.numel()
            own = self._names[id(parameter)]
            if own in self._tensors:
                lossy.append(Lossy(part, self._tensors[own], self._scale_of_state(own)))
            else:
                exact.append(part)
        averages = Averages(self._submissions, lossy, exact)
        if self._scaler is None and host is bucket.buffer():
            self._averages[bucket.index()] = layout, averages
        return averages

    def _declare(self, model: str, own: str, parameter: torch.Tensor) -> Tensor:
        full = f"{model}/{own}"
        if len(full.encode()) > _NAME_BYTES:
            raise ValueError(f"the parameter {full} has a name of more than {_NAME_BYTES} bytes; "
                             "exempt it, or give its module a shorter name")
        return self._submissions.group.declare(
            full, parameter.numel(), str(parameter.dtype).removeprefix("torch."), role="gradient",
            recipe=self._recipe, level=self._level if self._recipe == "auto" else None)

    def _scale_of_state(self, own: str) -> float:
        """By how much gradients have grown, by the loss scale, since the last one of this
        parameter."""
        now = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        before = self._scales.get(own, now)
        self._scales[own] = now
        return now / before


def _hook(state: Compression, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    return state.average(bucket)


# DDP compares these with its own classes, and not with their names.
_hook.__annotations__.update({"bucket": dist.GradBucket, "return": Future[torch.Tensor]})


def submissions_of(process_group: Any) -> Submissions:
    """Those of a group of Tern with the members of the process group."""
    if isinstance(process_group, TernProcessGroup):
        own: Submissions = process_group._submissions
        return own
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    own_failure: TernError | None = None
    group_id = ""
    try:
        client = shared_client()
        group_id = client.mint() if rank == 0 else ""
    except TernError as error:
        own_failure = error
    # All hear of a failure of any: who has none would wait for the others to join.
    told: list[Any] = [None] * size
    dist.all_gather_object(told, (group_id, str(own_failure or "")), group=process_group)
    if own_failure is not None:
        raise as_torch(own_failure)
    for other, (_, failure) in enumerate(told):
        if failure:
            raise as_torch(LaunchError(f"rank {other} has no group of Tern: {failure}"))
    return Submissions(client.join(told[0][0], rank, size))
