"""A handle of libtern that ends with the last reference to it.

ctypes keeps the arguments of a call alive while the call runs. So a handle that one thread closes
while another is inside the library ends when that call has returned, without a lock.
"""

from __future__ import annotations

from collections.abc import Callable


class Handle:
    """`address` is passed to C wherever the handle is an argument; `end(address)` ends it. `keeps`
    are handles that must outlive this one. `first` has what is to be called before the end, by
    whatever key: it must not refer to the handle."""

    __slots__ = ("_as_parameter_", "_end", "_ended", "_keeps", "first")

    def __init__(self, address: int | None, end: Callable[[int | None], object],
                 *keeps: Handle) -> None:
        self._as_parameter_ = address
        self._end = end
        self._ended = False
        self._keeps = keeps
        self.first: dict[int, Callable[[], object]] = {}

    def __del__(self) -> None:
        if self.ended:
            return
        self._ended = True
        for end in list(self.first.values()):
            end()
        # A status is of no use here: whatever it is, the handle has ended.
        self._end(self._as_parameter_)

    @property
    def ended(self) -> bool:
        """The collector ends what is garbage together in any order, and a handle takes with it all
        that need it: there is nothing left to end then."""
        return self._ended or any(kept.ended for kept in self._keeps)
