"""Threads that a child of fork() has too."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Executor:
    """A ThreadPoolExecutor, which a child of fork() makes anew: it has none of its parent's
    threads, and would wait for them. Made once, with a module. Thread: any."""

    def __init__(self, threads: int, name: str) -> None:
        """`threads`: at most. `name`: before the numbers of their names."""
        self._threads, self._name = threads, name
        self._make()
        os.register_at_fork(after_in_child=self._make)

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Runs work(*arguments) in one of the threads. Raises RuntimeError when the interpreter
        ends."""
        return self._pool.submit(work, *arguments)

    def _make(self) -> None:
        self._pool = ThreadPoolExecutor(self._threads, self._name)
