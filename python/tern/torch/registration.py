"""Makes the backend known to torch.distributed."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from .backend import BACKEND, TernBackend
from .meeting import meet
from .process_group import TernProcessGroup
from .submissions import Submissions


def register() -> None:
    """Registers "tern" as a backend for tensors on the processor and on GPUs. A second call does
    nothing.

    `import tern.torch` calls it. From PyTorch 2.14 on init_process_group("tern") does so by itself
    where Tern is installed, through the entry point torch.distributed.backends.
    """
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, _: object) -> Any:
    submissions = Submissions(
        meet(options.store, options.group_rank, options.group_size, options.timeout))
    if _is_one_of_several(options):
        return TernBackend(submissions, options.timeout)
    return TernProcessGroup(options.store, submissions, options.timeout)


def _is_one_of_several(options: Any) -> bool:
    """Whether the group has another backend for other devices, as "cpu:tern,cuda:nccl": from
    PyTorch 2.14 on the group under construction is at hand, and names the backend of its
    accelerator. A process group in Python would replace it."""
    group = getattr(options, "process_group", None)
    return group is not None and (group.name() != "custom" or bool(group._device_types))
