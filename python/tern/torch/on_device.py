"""Whether the gradients of a model can be encoded on its GPU, and what does it then."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import numpy as np
import torch

from ..cuda import Device
from ..errors import TernError
from ..group import Group
from ..tensor import Tensor
from .device_buckets import DeviceBuckets, Streams
from .submissions import Submissions

# Of what a rank tells the others.
_REASON_BYTES = 256
# At a time, as many as the library has.
_OPERATIONS = 512

# No parameter is called so.
_EXACT = "/exact"

# The name of a tensor, its count and its recipe: what declares it.
Declare = Callable[[str, int, str], Tensor]


def device_buckets(submissions: Submissions, parameters: Mapping[str, torch.Tensor],
                   recipes: Mapping[str, str],
                   declare: Declare) -> tuple[DeviceBuckets | None, str]:
    """What averages the gradients of `parameters` on their GPU; or None, and why not. The same on
    all ranks, who all call it.

    `parameters`: those that are trained, by name. `recipes`: of those that may lose values.
    """
    group = submissions.group
    why = _any_reason(submissions, _objection(group, parameters, recipes))
    if why:
        return None, why
    place = next(iter(parameters.values())).device
    device: Device | None = None
    own_why = ""
    try:
        device = open_device(group, place)
    except (TernError, RuntimeError) as error:
        own_why = _sentence(error)
    why = _any_reason(submissions, own_why)
    if why or device is None:
        if device is not None:
            device.close()
        return None, why
    # Whether it can be declared is the same for all. Each has to declare as often as the others.
    tensors: dict[str, Tensor] = {}
    made = None
    try:
        for own, recipe in recipes.items():
            tensors[own] = declare(own, parameters[own].numel(), recipe)
        count = sum(each.numel() for own, each in parameters.items() if own not in recipes)
        if count:
            tensors[_EXACT] = declare(_EXACT, count, "raw")
        bound = {own: device.bind(tensor) for own, tensor in tensors.items()}
        exact = bound.pop(_EXACT, None)
        names = {id(parameter): own for own, parameter in parameters.items()}
        made = DeviceBuckets(names, bound, exact, device=device, streams=streams_of(place),
                             place=place)
    except (TernError, RuntimeError) as error:
        own_why = _sentence(error)
    why = _any_reason(submissions, own_why)
    if not why:
        return made, ""
    for tensor in tensors.values():
        with contextlib.suppress(TernError):
            tensor.release()
    device.close()
    return None, why


def open_device(group: Group, place: torch.device) -> Device:
    """In PyTorch's context, which is there once something has been allocated."""
    with torch.cuda.device(place):
        torch.empty(1, device=place)
        return Device(group.client, operations=_OPERATIONS)


def streams_of(place: torch.device) -> Streams:
    return Streams(place)


def _objection(group: Group, parameters: Mapping[str, torch.Tensor],
               recipes: Mapping[str, str]) -> str:
    """What is against it, as far as it can be said without the library."""
    info = group.info()
    if info.node_count == 1:
        return "all ranks are on one node, which nothing leaves"
    places = {parameter.device for parameter in parameters.values()}
    if not places:
        return "no parameter is trained"
    if len(places) != 1:
        return "the parameters are on several devices"
    if not is_gpu(next(iter(places))):
        return "the parameters are in the processor's memory"
    if info.node_count != info.size:
        return (f"{info.size} ranks are on {info.node_count} nodes, and a group whose blocks are "
                "made on GPUs has one on each")
    kinds = {parameter.dtype for parameter in parameters.values()}
    if kinds != {torch.float32}:
        return f"gradients are of {', '.join(sorted(str(kind)[6:] for kind in kinds))}, not float32"
    if "auto" in recipes.values():
        return 'recipe="auto" measures elements; give a recipe, as "int:bits=8"'
    return ""


def is_gpu(place: torch.device) -> bool:
    """Whether kernels can reach its memory."""
    cuda: bool = place.type == "cuda"
    return cuda


def _any_reason(submissions: Submissions, own: str) -> str:
    """The reason of the first rank that has one; "" if none has. Call it on all ranks."""
    group = submissions.group
    said = np.zeros(_REASON_BYTES, "uint8")
    text = own.encode()[:_REASON_BYTES]
    said[:len(text)] = np.frombuffer(text, "uint8")
    every = np.zeros(group.size * _REASON_BYTES, "uint8")
    submissions.start("a vote", [lambda: group.all_gather(said, out=every)], []).wait()
    for rank, row in enumerate(every.reshape(group.size, _REASON_BYTES)):
        reason = row.tobytes().rstrip(b"\0").decode(errors="replace")
        if reason:
            return f"rank {rank}: {reason}"
    return ""


def _sentence(error: Exception) -> str:
    """Its first line; some are longer than a log's."""
    return str(error).split("\n")[0] or type(error).__name__
