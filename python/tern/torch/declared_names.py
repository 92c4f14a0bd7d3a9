"""The names under which parameters are declared.

A daemon may keep what a recipe owes for the next declaration of the same name (state_ttl). A node
may have ranks of several groups that average a model, or parts of one: these must have names of
their own, the same in every run.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch.distributed as dist

_BYTES = 127  # of a declaration, with the nine of what name_among() adds


def declared_name(model: str, own: str) -> str:
    """`model`: the name that tells models of a job apart. Raises ValueError for one that is too
    long."""
    full = f"{model}/{own}"
    if len(full.encode()) > _BYTES:
        raise ValueError(f"the parameter {full} has a name of more than {_BYTES} bytes; exempt it, "
                         "or give its module a shorter name")
    return full


def name_among(model: str, process_group: Any, place: str = "") -> str:
    """The name of a model that this process group averages: of a group of all ranks, as it is.
    `place`: of the part that it averages, of any length."""
    ranks = dist.get_process_group_ranks(process_group)
    if len(ranks) == dist.get_world_size():
        return model
    return f"{model}@{hashlib.sha256(f'{ranks}{place}'.encode()).hexdigest()[:8]}"
