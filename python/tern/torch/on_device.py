"""Whether the gradients of a group's ranks can be encoded on their GPUs, and what does it then."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ..cuda import BoundTensor, Device
from ..errors import TernError
from ..group import Group
from ..tensor import Tensor
from .device_buckets import DeviceBuckets
from .device_starts import Streams
from .submissions import Submissions
from .votes import first_reason

# At a time, as many as the library has.
_OPERATIONS = 512

# No parameter is called so.
EXACT = "/exact"

# The name of a tensor, its count and its recipe: what declares it.
Declare = Callable[[str, int, str], Tensor]


@dataclass(frozen=True)
class Wanted:
    """A tensor that is to be bound: its elements, and its recipe."""

    count: int
    recipe: str


class GroupOnDevice:
    """The GPUs of a group's ranks, which are used if all of them can be. Thread: that of the
    training."""

    def __init__(self, submissions: Submissions) -> None:
        self._submissions = submissions
        self.device: Device | None = None  # once something has been bound

    def bind(self, wanted: Mapping[str, Wanted], declare: Declare, places: set[torch.device],
             types: set[torch.dtype]) -> tuple[dict[str, BoundTensor], str]:
        """The tensors, declared and bound, by name; or none, and why not. The same on all ranks,
        who all call it. `places`, `types`: of the values."""
        group = self._submissions.group
        why = first_reason(self._submissions, _objection(group, wanted, places, types))
        if why:
            return {}, why
        own_why, opened = "", None
        try:
            if self.device is None:
                opened = open_device(group, next(iter(places)))
        except (TernError, RuntimeError) as error:
            own_why = _sentence(error)
        why = first_reason(self._submissions, own_why)
        device = self.device or opened
        if why or device is None:
            if opened is not None:
                opened.close()
            return {}, why
        # Whether it can be declared is the same for all. All have to declare equally often.
        tensors: dict[str, Tensor] = {}
        bound: dict[str, BoundTensor] = {}
        try:
            for own, each in wanted.items():
                tensors[own] = declare(own, each.count, each.recipe)
            bound = {own: device.bind(tensor) for own, tensor in tensors.items()}
        except (TernError, RuntimeError) as error:
            own_why = _sentence(error)
        why = first_reason(self._submissions, own_why)
        if not why:
            self.device = device
            return bound, ""
        for tensor in tensors.values():
            with contextlib.suppress(TernError):
                tensor.release()
        if opened is not None:
            opened.close()
        return {}, why


def device_buckets(submissions: Submissions, parameters: Mapping[str, torch.Tensor],
                   recipes: Mapping[str, str],
                   declare: Declare) -> tuple[DeviceBuckets | None, str]:
    """What averages the gradients of `parameters` on their GPU; or None, and why not. The same on
    all ranks, who all call it.

    `parameters`: those that are trained, by name. `recipes`: of those that may lose values.
    """
    wanted = {own: Wanted(parameters[own].numel(), recipe) for own, recipe in recipes.items()}
    count = sum(each.numel() for own, each in parameters.items() if own not in recipes)
    if count:
        wanted[EXACT] = Wanted(count, "raw")
    gpu = GroupOnDevice(submissions)
    bound, why = gpu.bind(wanted, declare, {each.device for each in parameters.values()},
                          {each.dtype for each in parameters.values()})
    if gpu.device is None:
        return None, why
    exact = bound.pop(EXACT, None)
    place = next(iter(parameters.values())).device
    names = {id(parameter): own for own, parameter in parameters.items()}
    return DeviceBuckets(names, bound, exact, device=gpu.device, streams=streams_of(place),
                         place=place), ""


def open_device(group: Group, place: torch.device) -> Device:
    """In PyTorch's context, which is there once something has been allocated."""
    with torch.cuda.device(place):
        torch.empty(1, device=place)
        return Device(group.client, operations=_OPERATIONS)


def streams_of(place: torch.device) -> Streams:
    return Streams(place)


def _objection(group: Group, wanted: Mapping[str, Wanted], places: set[torch.device],
               types: set[torch.dtype]) -> str:
    """What is against it, as far as it can be said without the library."""
    info = group.info()
    if info.node_count == 1:
        return "all ranks are on one node, which nothing leaves"
    if not wanted:
        return "no parameter is trained"
    if len(places) != 1:
        return "the parameters are on several devices"
    if not is_gpu(next(iter(places))):
        return "the parameters are in the processor's memory"
    if info.node_count != info.size:
        return (f"{info.size} ranks are on {info.node_count} nodes, and a group whose blocks are "
                "made on GPUs has one on each")
    if types != {torch.float32}:
        return f"gradients are of {', '.join(sorted(str(kind)[6:] for kind in types))}, not float32"
    return ""


def is_gpu(place: torch.device) -> bool:
    """Whether kernels can reach its memory."""
    cuda: bool = place.type == "cuda"
    return cuda


def _sentence(error: Exception) -> str:
    """Its first line; some are longer than a log's."""
    return str(error).split("\n")[0] or type(error).__name__
