"""What the recipes of a model remember, as it is in checkpoints: one state for each node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..errors import TernError
from .failures import as_torch
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


def check_parameters(states: Sequence[Mapping[str, Any]], may_have: Callable[[str], bool],
                     options: str) -> None:
    """Raises ValueError for a state of tensors that there will not be. `options`: of compress(),
    by which a model has them."""
    for state in states:
        odd = sorted(key for key in state["parts"] if not may_have(key))
        if odd:
            raise ValueError("the state is of other parameters than are compressed here: "
                             f"{', '.join(odd[:5])}. Compress with the same {options}")


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


class Imports(Protocol):
    """A tensor, as far as a state is imported."""

    count: int

    def import_state(self, *parts: bytes) -> None: ...


class LateStates:
    """States of a model whose tensors are declared one by one, until each has its own. Thread: one
    at a time."""

    def __init__(self, states: Sequence[dict[str, Any]] = ()) -> None:
        self._states = [{**state, "parts": dict(state["parts"])} for state in states]
        self._fit: bool | None = None  # on these nodes; None: not looked at yet

    def waiting(self) -> tuple[dict[str, bytes], dict[str, int]]:
        """Parts of this node that no tensor has asked for, and their tensors' counts. Raises
        RuntimeError where they are of several nodes: they cannot be saved as one node's."""
        left = sorted({key for state in self._states for key in state["parts"]})
        if not left or self._fit is False:
            return {}, {}
        if len(self._states) > 1:
            raise RuntimeError("the loaded states of several nodes are not imported yet for "
                               f"{', '.join(left[:5])}, which have not been used: save after a "
                               "step that uses all modules")
        state, = self._states
        return dict(state["parts"]), {key: state["counts"][key] for key in left}

    def give(self, submissions: Submissions, key: str, tensor: Imports) -> None:
        """Imports the state of this tensor, if there is one, and keeps it no longer. Call it on all
        ranks."""
        parts = [state["parts"].pop(key) for state in self._states if key in state["parts"]]
        if not parts:
            return
        if self._fit is None:
            self._fit = can_go_on(submissions, [state["nodes"] for state in self._states])
        if not self._fit:
            return
        if any(state["counts"].get(key) != tensor.count for state in self._states):
            _log.warning("compress: %s is sharded as the state of the checkpoint is not; it begins "
                         "with nothing owed", key)
        else:
            try:
                tensor.import_state(*parts)
            except TernError as error:
                raise as_torch(error) from None
            wait_for_all(submissions)
