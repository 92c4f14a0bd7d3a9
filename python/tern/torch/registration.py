"""Makes the backend known to torch.distributed."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from .backend import BACKEND
from .process_group import TernProcessGroup


def register() -> None:
    """Registers "tern" as a backend for tensors on the processor. A second call does nothing.

    `import tern.torch` calls it. From PyTorch 2.14 on init_process_group("tern") does so by itself
    where Tern is installed, through the entry point torch.distributed.backends.
    """
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu"])


def _create(options: Any, _: object) -> Any:
    return TernProcessGroup(options.store, options.group_rank, options.group_size, options.timeout)
