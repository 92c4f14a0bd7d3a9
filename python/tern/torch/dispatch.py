"""Operations that PyTorch's dispatcher has to see: modes, as CommDebugMode, and tensors that are
subclasses and unwrap themselves look at operations there. A process group in Python is called
directly, so that what they look for does not pass by.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

_PYTHON_KEY = torch._C.DispatchKey.Python

# The operations of a backend.
NAMES = ("allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather",
         "all_gather_single", "_allgather_base", "all_gather_single_coalesced",
         "allgather_into_tensor_coalesced", "allgather_coalesced", "reduce_scatter",
         "reduce_scatter_single", "_reduce_scatter_base", "reduce_scatter_single_coalesced",
         "reduce_scatter_tensor_coalesced", "all_to_all_single", "alltoall_base", "alltoall",
         "gather", "scatter", "barrier", "send", "recv", "recv_anysource")
# And what calls them, or is another name for one.
ALL_NAMES = (*NAMES, "allreduce_sparse", "gather_single", "gather_into_tensor", "recvAnysource")


def is_looked_at(arguments: Any) -> bool:
    """Whether a mode is on, or a tensor among them is a subclass with a dispatch of its own."""
    return torch._C._len_torch_dispatch_stack() > 0 or _has_subclass(arguments)


def _has_subclass(value: Any) -> bool:
    if type(value) is torch.Tensor:
        return False
    if isinstance(value, torch.Tensor):
        return bool(torch._C._dispatch_keys(value).has(_PYTHON_KEY))
    return isinstance(value, (list, tuple)) and any(map(_has_subclass, value))


def through_dispatcher(cls: type) -> type:
    """Has operations of a process group in Python that are looked at go through the one of C++
    that its `dispatched` is."""
    for name in NAMES:
        setattr(cls, name, _chosen(name, getattr(cls, name)))
    return cls


def _chosen(name: str, direct: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(direct)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if is_looked_at((*arguments, *named.values())):
            return getattr(self.dispatched, name)(*arguments, **named)
        return direct(self, *arguments, **named)

    return call


def group_of_cpp(group: Any, backend: Any) -> dist.ProcessGroup:
    """A process group of C++ with the ranks of `group`, whose operations end in `backend`."""
    made = dist.ProcessGroup(group.get_group_store(), group.rank(), group.size())
    for device in ("cpu", "cuda"):
        made._register_backend(torch.device(device), made.BackendType.CUSTOM, backend)
    made._set_default_backend(made.BackendType.CUSTOM)
    made._set_group_name(group.getGroupName())
    return made
