"""One question to a daemon's control socket."""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

_MAX_ANSWER_BYTES = 64 << 20  # a hundred thousand tensors
_TIMEOUT_S = 5.0


def ask(path: str | os.PathLike[str], verb: str, **arguments: Any) -> Any:
    """The result of a verb of docs/control-protocol.md. Raises OSError if nobody answers, and
    ValueError if the answer is an error or none that makes sense."""
    request = {"v": 1, "id": 1, "verb": verb, "args": arguments}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        # The system's own wait: after settimeout() a connect() takes a daemon whose queue is full
        # for none.
        control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO,
                           struct.pack("ll", *divmod(int(_TIMEOUT_S * 1e6), 1_000_000)))
        control.connect(os.fspath(path))
        control.settimeout(_TIMEOUT_S)
        control.sendall(json.dumps(request).encode() + b"\n")
        with control.makefile("rb") as lines:
            answer = json.loads(lines.readline(_MAX_ANSWER_BYTES))
    if not answer.get("ok"):
        raise ValueError(answer.get("error", {}).get("text", "the daemon's answer has no result"))
    return answer["result"]
