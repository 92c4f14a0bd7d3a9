"""Any number of operations that are submitted together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..batch import Batch
from ..group import Group
from ..ticket import Ticket

# A batch needs places for all its operations at once, of which a group has 128 by default: the
# daemon's setting max_ops_in_flight.
_OPERATIONS_AT_ONCE = 32


class Batches:
    """A tern.Batch, or several where there are many operations."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._list: list[Batch] = []

    def add(self, operation: str, x: Any, **more: Any) -> None:
        """As tern.Batch.add()."""
        if not self._list or len(self._list[-1]) == _OPERATIONS_AT_ONCE:
            self._list.append(self._group.batch())
        self._list[-1].add(operation, x, **more)

    def calls(self) -> list[Callable[[], Ticket]]:
        """What submits them, for Submissions.start()."""
        return [batch.submit for batch in self._list]
