"""What all groups of a client have under way. They share its arena, and the places that it has for
operations: what one group waits for, another may have."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from ..client import Client
from ..ticket import Ticket
from .work import has_ended

if TYPE_CHECKING:
    from .submissions import Submissions


class Neighbours:
    """The groups of one client. It keeps none of them. Thread: any."""

    def __init__(self) -> None:
        self._groups: weakref.WeakValueDictionary[int, Submissions] = weakref.WeakValueDictionary()
        self._ends = 0
        self._one_more_ended = threading.Condition()

    def add(self, group: Submissions) -> None:
        self._groups[id(group)] = group

    def wait_for_one(self, own: list[Ticket]) -> bool:
        """Waits until one of the operations that run has ended, whichever it is: of a Work of any
        group, or of `own`, which loses those that have ended. False: none runs. Some places are the
        group's and others the client's, so that any of them may be what is waited for."""
        # A list of references: another thread may add a group meanwhile.
        groups = [reference() for reference in self._groups.valuerefs()]
        running = [work for group in groups if group is not None for work in group.running]
        if not running and not own:
            return False
        seen = self._ends
        for work in running:
            work.watch(self._count_end)
        for ticket in own:
            ticket._client._notifier().watch(ticket, self._count_end)
        # One that had been told of before ended before `seen` was read, and is complete.
        if not any(work.is_completed() for work in running) and not any(map(has_ended, own)):
            with self._one_more_ended:
                self._one_more_ended.wait_for(lambda: self._ends != seen)
        own[:] = [ticket for ticket in own if not has_ended(ticket)]
        return True

    def _count_end(self) -> None:
        with self._one_more_ended:
            self._ends += 1
            self._one_more_ended.notify_all()


_of_client: weakref.WeakKeyDictionary[Client, Neighbours] = weakref.WeakKeyDictionary()


def neighbours_of(client: Client) -> Neighbours:
    """Those of all groups of this client, always the same."""
    return _of_client.setdefault(client, Neighbours())
