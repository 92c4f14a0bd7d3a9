"""What the recipes of a model remember, as it is in checkpoints: one state for each node."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from .submissions import Submissions

_log = logging.getLogger("tern")
_VERSION = 1


def state_of(submissions: Submissions, parts: Mapping[str, bytes],
             scales: Mapping[str, float]) -> dict[str, Any]:
    """This node's state. `parts`: of export_state(), by the names of tensors."""
    info = submissions.group.info()
    return {"version": _VERSION, "node": info.node, "nodes": info.node_count,
            "parts": dict(parts), "scales": dict(scales)}


def check_version(states: Sequence[Mapping[str, Any]]) -> None:
    """Raises ValueError for a state of another version."""
    for state in states:
        if state.get("version") != _VERSION:
            raise ValueError(f"the state has version {state.get('version')}; this package reads "
                             f"{_VERSION}")


def can_go_on(submissions: Submissions, nodes_then: Sequence[int]) -> bool:
    """Whether states of so many nodes can be imported here. From or to one node, where nothing is
    owed, they cannot; a warning says so where something was or will be owed."""
    nodes = submissions.group.info().node_count
    if nodes > 1 and all(then > 1 for then in nodes_then):
        return True
    if nodes > 1 or any(then > 1 for then in nodes_then):
        _log.warning("compress: the state is of %d nodes, and here is %s. On one node nothing is "
                     "compressed or owed: the job begins with nothing owed",
                     nodes_then[0] if nodes_then else 0,
                     "one" if nodes == 1 else f"a group of {nodes}")
    return False


def wait_for_all(submissions: Submissions) -> None:
    """After an import: no operation may begin before all nodes have imported."""
    submissions.start("barrier", [submissions.group.barrier], []).wait()
