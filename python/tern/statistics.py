"""What this node's daemon says of its jobs: ratio, residual, bytes, and where time goes.

The figures are those of `ternctl top` and of docs/control-protocol.md. A daemon shows to each user
what belongs to that user's jobs, whichever process declared it, so that a notebook can watch the
training that runs beside it. All figures are of this node, and totals count from a tensor's
declaration: read them twice and subtract for those of an interval.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ._control import ask
from ._places import control_socket
from .errors import DaemonAbsentError, ProtocolError, UnknownGroupError, UnsupportedError

__all__ = ["GroupStats", "NodeStats", "StepSplit", "TensorStats", "Totals", "stats"]

_NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class StepSplit:
    """Where the time of operations went, in nanoseconds: encoding, the daemon's queues, the wire,
    decoding, and the wait for other ranks. The parts of different chunks overlap in time, so the
    sum may exceed the time that a caller has waited."""

    encode_ns: int = 0
    queue_ns: int = 0
    wire_ns: int = 0
    decode_ns: int = 0
    wait_ns: int = 0

    @property
    def total_ns(self) -> int:
        """The sum of the parts."""
        return sum(getattr(self, field.name) for field in fields(self))

    def shares(self) -> dict[str, float]:
        """Each part by the sum, 0 to 1, under its name: "encode", "queue", "wire", "decode",
        "wait"."""
        total = self.total_ns or 1
        return {field.name.removesuffix("_ns"): getattr(self, field.name) / total
                for field in fields(self)}

    def __add__(self, other: StepSplit) -> StepSplit:
        return StepSplit(*(getattr(self, field.name) + getattr(other, field.name)
                           for field in fields(self)))

    def __sub__(self, earlier: StepSplit) -> StepSplit:
        return StepSplit(*(getattr(self, field.name) - getattr(earlier, field.name)
                           for field in fields(self)))


@dataclass(frozen=True)
class Totals:
    """Sums over tensors. `residual_ratio`: the largest of them."""

    ops: int = 0
    bytes_raw: int = 0
    bytes_sent: int = 0
    residual_ratio: float = 0.0
    split: StepSplit = StepSplit()

    @property
    def ratio(self) -> float:
        """bytes_raw / bytes_sent; 1 if nothing was sent."""
        return self.bytes_raw / self.bytes_sent if self.bytes_sent else 1.0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.ops + other.ops, self.bytes_raw + other.bytes_raw,
                      self.bytes_sent + other.bytes_sent,
                      max(self.residual_ratio, other.residual_ratio), self.split + other.split)

    def __sub__(self, earlier: Totals) -> Totals:
        """What an interval has added. The residual is that of its end."""
        return Totals(self.ops - earlier.ops, self.bytes_raw - earlier.bytes_raw,
                      self.bytes_sent - earlier.bytes_sent, self.residual_ratio,
                      self.split - earlier.split)


@dataclass(frozen=True)
class TensorStats:
    """What has happened to a tensor on this node.

    `ops`: completed operations. `bytes_raw`: what the blocks that this node sent would have taken
    uncompressed; `bytes_sent`: what they took; `ratio`: the first by the second, 1 before anything
    was sent. `residual_ratio`: norm of the residual by that of the input, last operation.
    `raw_fallbacks`: chunks that travelled raw because of a NaN or an infinity. `state_bytes`:
    memory of the recipe's state. `recipe`: in canonical form.
    """

    name: str
    recipe: str
    ops: int
    bytes_raw: int
    bytes_sent: int
    ratio: float
    residual_ratio: float
    raw_fallbacks: int
    state_bytes: int
    split: StepSplit

    @property
    def total(self) -> Totals:
        """The same as a term of a sum."""
        return Totals(self.ops, self.bytes_raw, self.bytes_sent, self.residual_ratio, self.split)


@dataclass(frozen=True)
class GroupStats:
    """A group with a rank on this node. `uid`: the beginning of the group's id, no secret. `state`:
    "joining", "running", "failed" or "leaving"; `error`: why it has failed. `waiting`:
    sentences about operations that not all ranks have submitted. `tensors`: the declared ones.
    `number`: the daemon's for the group; 0 while ranks join, and from an older daemon."""

    uid: str
    job: str
    state: str
    error: str
    size: int
    node_count: int
    local_ranks: tuple[int, ...]
    ops_completed: int
    ops_in_flight: int
    waiting: tuple[str, ...]
    tensors: tuple[TensorStats, ...]
    number: int = 0

    @property
    def total(self) -> Totals:
        """The sums over its tensors."""
        return sum((tensor.total for tensor in self.tensors), Totals())


@dataclass(frozen=True)
class NodeStats:
    """A daemon. `clients`, `peers`: connected processes and linked daemons of this user's jobs, or
    all to who may see all. `plaintext`: traffic between nodes is not encrypted."""

    version: str
    uptime_s: float
    clients: int
    peers: int
    plaintext: bool
    groups: tuple[GroupStats, ...]


def stats(socket: str | os.PathLike[str] | None = None) -> NodeStats:
    """What this node's daemon says of the jobs of this user, in all processes.

    `socket`: the daemon's, as of connect(); None: at $TERN_SOCKET, else the system's, else the
    user's own. Nothing is started. It asks the control socket, control.sock beside it or the one of
    $TERN_CONTROL_SOCKET, which takes some milliseconds and holds up no operation. Raises
    DaemonAbsentError if nobody answers there.
    Thread: any.
    """
    path = control_socket(socket)
    status = _answer(path, "status")
    return NodeStats(status["version"], status["uptime_s"], status["clients"], status["peers"],
                     status["plaintext"], _groups(path))


@dataclass(frozen=True)
class Place:
    """Of a process in a group, as far as it knows how the daemon's tables name the group: by its
    `number`, 0 from an older library, and its `uid`, empty for a group that has come of a split."""

    number: int
    uid: str
    rank: int
    size: int

    def is_in(self, group: GroupStats) -> bool:
        """A daemon that has started anew gives its numbers again, so the rest has to fit too."""
        if self.uid and group.uid != self.uid or group.size != self.size:
            return False
        if self.number and group.number:
            return self.number == group.number and self.rank in group.local_ranks
        if self.number and group.state == "joining":
            return False  # the next of this uid: what has a number has been joined
        return bool(self.uid)


def of_group(socket: str, place: Place) -> GroupStats:
    """See Group.stats()."""
    groups = _groups(control_socket(socket))
    for group in groups:
        if place.is_in(group):
            return group
    have_numbers = all(group.number or group.state == "joining" for group in groups)
    if not place.uid and not (place.number and have_numbers):
        raise UnsupportedError(f"the daemon at {socket} or libtern is of an older version, which "
                               "does not tell groups of split() apart: update it, or look for the "
                               "group in tern.stats(), which has all of them")
    name = place.uid or f"number {place.number}"
    raise UnknownGroupError(f"the daemon at {socket} has no group {name} of this user; it has been "
                            "left, or the daemon has started anew: join again")


def _answer(path: pathlib.Path, verb: str) -> Any:
    try:
        return ask(path, verb)
    except OSError as error:
        raise DaemonAbsentError(f"no daemon answers at {path}: {error}. Start one, by connect() or "
                                "`tern up`, or pass the path of its ternd.sock") from error
    except ValueError as error:
        raise ProtocolError(f"the daemon at {path} does not say its {verb}: {error}") from error


def _groups(path: pathlib.Path) -> tuple[GroupStats, ...]:
    # By number too: for a while an epoch that has failed is beside its successor.
    tensors: dict[tuple[str, int], list[TensorStats]] = {}
    for row in _answer(path, "tensors"):
        tensors.setdefault((row["group"], row.get("group_number", 0)), []).append(_tensor(row))
    return tuple(
        GroupStats(row["uid"], row["job"], row["state"], row["error"], row["size"], row["nodes"],
                   tuple(row["local_ranks"]), row["ops_completed"], row["ops_in_flight"],
                   tuple(_waiting(row["waiting"])),
                   tuple(tensors.get((row["uid"], row.get("number", 0)), ())),
                   row.get("number", 0))
        for row in _answer(path, "groups"))


def _tensor(row: Mapping[str, Any]) -> TensorStats:
    split = StepSplit(*(
        round(row[field.name.replace("_ns", "_ms")] * _NS_PER_MS) for field in fields(StepSplit)))
    return TensorStats(**{field.name: row[field.name] for field in fields(TensorStats)
                          if field.name != "split"}, split=split)


def _waiting(rows: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for row in rows:
        ranks = ",".join(map(str, row["ranks"]))
        yield (f"{row['op']} of {row['tensor']}: waiting for ranks {ranks} for "
               f"{row['seconds']:.0f} s")
