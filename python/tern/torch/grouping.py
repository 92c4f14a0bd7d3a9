"""A group of Tern with the members of any process group."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from ..errors import LaunchError, TernError
from .failures import as_torch
from .meeting import client_and_id, shared_client
from .process_group import TernProcessGroup
from .submissions import Submissions


def submissions_of(process_group: Any) -> Submissions:
    """Those of a group of Tern with the members of the process group."""
    if isinstance(process_group, TernProcessGroup):
        own: Submissions = process_group._submissions
        return own
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    own_failure: TernError | None = None
    group_id = ""
    try:
        client, group_id = client_and_id() if rank == 0 else (shared_client(), "")
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
    try:
        return Submissions(client.join(told[0][0], rank, size))
    except TernError as error:
        raise as_torch(error) from None
