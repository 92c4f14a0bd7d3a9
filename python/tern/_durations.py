"""Seconds of Python as milliseconds of C."""

from __future__ import annotations


def milliseconds(seconds: float | None, otherwise: int) -> int:
    """The library's unit; a timeout that is not 0 does not become 0, which has a meaning of its
    own."""
    if seconds is None:
        return otherwise
    if seconds < 0:
        raise ValueError(f"a timeout of {seconds} s is negative")
    return max(1, round(seconds * 1000))
