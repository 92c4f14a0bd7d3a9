"""An exception class for each status of libtern, and two of the package's own.

All of them are TernError. Where Python has a class for the kind of failure, the exception is one of
that class too: `except TimeoutError` catches a wait that took too long.
"""

from __future__ import annotations

__all__ = [
    "TernError", "LibraryError", "ClosedError", "LaunchError", "InvalidArgumentError",
    "OutOfMemoryError", "WouldBlockError", "WaitTimeoutError", "DaemonAbsentError",
    "DaemonLostError", "PeerLostError", "RankLostError", "MismatchError",
    "OperationCancelledError", "OperationTimeoutError", "BadSecretError", "RankTakenError",
    "WrongSizeError", "QuotaExceededError", "UnknownGroupError", "UnknownTensorError",
    "UnknownTicketError", "VersionMismatchError", "PermissionDeniedError", "ForkedError",
    "CorruptDataError", "ProtocolError", "EpochEndedError", "UnsupportedError",
    "SystemCallError", "ShuttingDownError", "GroupLeftError", "StateMismatchError",
    "ResultMismatchError", "BadRecipeError", "AlreadyExistsError", "UnreachableError",
    "InternalError",
]


class TernError(Exception):
    """Any failure of Tern. Its text joins what the status means and what to do about it with the
    detail: which rank said what, which name is missing, which file is not there.

    `status`: the number of tern.h, 0 for failures of the package itself.
    `remedy`: the library's sentence on the status. `detail`: the daemon's or library's sentence on
    this very failure, or "".
    """

    status: int = 0
    remedy: str = ""
    detail: str = ""


class LibraryError(TernError, ImportError):
    """libtern or one of Tern's programs cannot be found or loaded."""


class ClosedError(TernError, ValueError):
    """The client, group or tensor has been closed by this program."""


class LaunchError(TernError, RuntimeError):
    """A job or a daemon of the user's own cannot be started; the text says why and what to do."""


class InvalidArgumentError(TernError, ValueError):
    """An argument is out of its range; the detail says which."""

    status = 1


class OutOfMemoryError(TernError, MemoryError):
    """The arena is full, or the machine or control group has no memory left."""

    status = 2


class WouldBlockError(TernError):
    """Too many operations are in flight: wait for a ticket and submit again."""

    status = 3


class WaitTimeoutError(TernError, TimeoutError):
    """The time given to the call has passed; an operation goes on."""

    status = 4


class DaemonAbsentError(TernError, ConnectionError):
    """No daemon listens on the socket."""

    status = 5


class DaemonLostError(TernError, ConnectionError):
    """The daemon of this node ended; connect again when it is back."""

    status = 6


class PeerLostError(TernError, ConnectionError):
    """The daemon of another node was lost; leave the group and join again."""

    status = 7


class RankLostError(TernError, ConnectionError):
    """The process of another rank was lost; the detail names the rank."""

    status = 8


class MismatchError(TernError, ValueError):
    """Ranks disagree on an operation; the detail says which rank said what."""

    status = 9


class OperationCancelledError(TernError):
    """A rank cancelled the operation."""

    status = 10


class OperationTimeoutError(TernError, TimeoutError):
    """Not all ranks submitted the operation within op_timeout."""

    status = 11


class BadSecretError(TernError, PermissionError):
    """The group id's secret is wrong."""

    status = 12


class RankTakenError(TernError):
    """Another process has joined the group with this rank."""

    status = 13


class WrongSizeError(TernError, ValueError):
    """The ranks of the group give different sizes."""

    status = 14


class QuotaExceededError(TernError):
    """A limit of the daemon's configuration is reached; the detail names it."""

    status = 15


class UnknownGroupError(TernError, LookupError):
    """The daemon does not know the group."""

    status = 16


class UnknownTensorError(TernError, LookupError):
    """The tensor is not declared in this group."""

    status = 17


class UnknownTicketError(TernError, LookupError):
    """The ticket is not in use."""

    status = 18


class VersionMismatchError(TernError):
    """The library and a daemon, or two daemons, speak different versions."""

    status = 19


class PermissionDeniedError(TernError, PermissionError):
    """The daemon's access policy refuses this user."""

    status = 20


class ForkedError(TernError):
    """The handle belongs to the parent process; connect again in the child."""

    status = 21


class CorruptDataError(TernError):
    """A payload did not match its checksum."""

    status = 22


class ProtocolError(TernError):
    """The other side broke the protocol and was disconnected."""

    status = 23


class EpochEndedError(TernError):
    """The group's epoch has ended; leave the group and join again."""

    status = 24


class UnsupportedError(TernError, NotImplementedError):
    """This version of the library or the daemon cannot do it."""

    status = 25


class SystemCallError(TernError, OSError):
    """A system call failed; the detail says which."""

    status = 26


class ShuttingDownError(TernError, ConnectionError):
    """The daemon is stopping."""

    status = 27


class GroupLeftError(TernError):
    """This rank or another has left the group."""

    status = 28


class StateMismatchError(TernError, ValueError):
    """Codec state does not fit this layout."""

    status = 29


class ResultMismatchError(TernError):
    """Verification found different results on different ranks."""

    status = 30


class BadRecipeError(TernError, ValueError):
    """The recipe cannot be read; the detail points at the place."""

    status = 31


class AlreadyExistsError(TernError):
    """The name is already in use."""

    status = 32


class UnreachableError(TernError, ConnectionError):
    """The other node does not answer."""

    status = 33


class InternalError(TernError):
    """A defect of Tern; please report it."""

    status = 34


_CLASSES: dict[int, type[TernError]] = {
    kind.status: kind for kind in TernError.__subclasses__() if kind.status != 0}


def failure(status: int, remedy: str, detail: str) -> TernError:
    """The exception for a status of libtern. A status of a later library is a TernError."""
    error = _CLASSES.get(status, TernError)(f"{remedy}: {detail}" if detail else remedy)
    error.status = status
    error.remedy = remedy
    error.detail = detail
    return error
