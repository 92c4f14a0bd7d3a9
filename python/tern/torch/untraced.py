"""Operations that torch.compile() leaves alone.

Dynamo, which traces a program for torch.compile(), knows process groups of C++. It would go on into
the methods of one in Python, and fails at the first member that it has not heard of.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch


def leave_untraced(cls: type, names: Iterable[str]) -> None:
    """Has Dynamo run these methods of the class as they are: a graph ends before each call, and
    another begins behind it.

    To say so imports Dynamo, which takes seconds. So it is said at the first call after the program
    has imported it; before that nothing is traced.
    """
    methods = {name: getattr(cls, name) for name in names}

    def tell_dynamo() -> None:
        for name, method in methods.items():
            setattr(cls, name, torch.compiler.disable(method))

    for name, method in methods.items():
        setattr(cls, name, _telling(tell_dynamo, method))


def _telling(tell_dynamo: Callable[[], None], method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return method(self, *arguments, **named)
        tell_dynamo()
        return getattr(self, method.__name__)(*arguments, **named)

    return call
