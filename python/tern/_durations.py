"""Seconds of Python as milliseconds of C."""

from __future__ import annotations

_LONGEST_SECONDS = 1e9  # 31 years, instead of infinity; as nanoseconds it fits in 64 bits


def milliseconds(seconds: float | None) -> int:
    """The library's unit. None becomes 0, by which the library takes its own default; a timeout of
    0 does not. Raises ValueError for one that is negative or not a number."""
    if seconds is None:
        return 0
    if not seconds >= 0:
        raise ValueError(f"timeout={seconds}: a timeout is a number of seconds, 0 or more")
    return max(1, round(min(seconds, _LONGEST_SECONDS) * 1000))
