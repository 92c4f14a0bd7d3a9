"""What the ranks of a group tell each other before they decide alike."""

from __future__ import annotations

import numpy as np

from .submissions import Submissions

_BYTES = 256  # of what each says


def said_by_all(submissions: Submissions, own: str) -> list[str]:
    """What each rank says, by rank; cut to 256 bytes. Call it on all ranks."""
    group = submissions.group
    said = np.zeros(_BYTES, "uint8")
    text = own.encode()[:_BYTES]
    said[:len(text)] = np.frombuffer(text, "uint8")
    every = np.zeros(group.size * _BYTES, "uint8")
    submissions.start("a vote", [lambda: group.all_gather(said, out=every)], []).wait()
    return [row.tobytes().rstrip(b"\0").decode(errors="replace")
            for row in every.reshape(group.size, _BYTES)]


def first_reason(submissions: Submissions, own: str) -> str:
    """The reason of the first rank that has one; "" if none has. Call it on all ranks."""
    for rank, reason in enumerate(said_by_all(submissions, own)):
        if reason:
            return f"rank {rank}: {reason}"
    return ""
