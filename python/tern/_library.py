"""Finds libtern and the programs beside it, and gives the C functions their signatures."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import shutil
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from . import _structs as structs
from .errors import LibraryError, UnsupportedError, failure

_BUNDLED = pathlib.Path(__file__).parent / "_bundled"
_P = ctypes.POINTER

# Every function that answers with a tern_status, and its parameters.
_SIGNATURES: dict[str, list[Any]] = {
    "tern_connect": [_P(structs.ConnectOptions), _P(c_void_p)],
    "tern_disconnect": [c_void_p],
    "tern_alloc": [c_void_p, c_size_t, _P(c_void_p)],
    "tern_free": [c_void_p, c_void_p],
    "tern_group_mint": [c_void_p, _P(structs.GroupId)],
    "tern_group_join": [c_void_p, _P(structs.GroupId), _P(structs.JoinOptions), _P(c_void_p)],
    "tern_group_leave": [c_void_p],
    "tern_group_get_info": [c_void_p, _P(structs.GroupInfo)],
    "tern_tensor_declare": [c_void_p, _P(structs.TensorOptions), _P(c_void_p)],
    "tern_tensor_release": [c_void_p],
    "tern_tensor_get_stats": [c_void_p, _P(structs.TensorStats)],
    "tern_tensor_state_bytes": [c_void_p, _P(c_uint64)],
    "tern_tensor_export_state": [c_void_p, c_void_p, c_uint64, _P(c_uint64)],
    "tern_tensor_import_state": [c_void_p, _P(c_void_p), _P(c_uint64), c_uint32],
    "tern_barrier": [c_void_p, _P(c_uint64)],
    "tern_wait": [c_void_p, c_uint64, c_int64],
    "tern_test": [c_void_p, c_uint64],
    "tern_cancel": [c_void_p, c_uint64],
    "tern_fd": [c_void_p, _P(c_int)],
}

# The same of functions that a library of an older version lacks.
_LATER_SIGNATURES: dict[str, list[Any]] = {
    "tern_group_split": [c_void_p, c_int32, c_int32, _P(structs.SplitOptions), _P(c_void_p)],
    "tern_group_set_level": [c_void_p, c_char_p],
    "tern_submit_batch": [c_void_p, _P(structs.Batch), _P(c_uint64)],
    "tern_region_create": [c_void_p, c_uint64, _P(c_void_p)],
}

# The collectives share one signature. A library has those of its version.
_COLLECTIVES = ("all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "gather",
                "scatter", "all_to_all", "send", "recv")
_COLLECTIVE_SIGNATURE: list[Any] = [c_void_p, _P(structs.Op), _P(c_uint64)]


class Library:
    """libtern with typed functions: `library.tern_wait(client, ticket, timeout_ms)`.

    Thread: any. ctypes gives the interpreter's lock back for the time of each call.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._c = ctypes.CDLL(path)
            for name in ("tern_strerror", "tern_error_detail", "tern_version"):
                getattr(self._c, name).restype = c_char_p
            for name, arguments in _SIGNATURES.items():
                self._bind(name, arguments)
        except (OSError, AttributeError) as error:
            raise LibraryError(f"{path} cannot be used as libtern: {error}") from error
        self._c.tern_strerror.argtypes = [c_int32]
        self.version: str = self._c.tern_version().decode()
        # Their functions by their names.
        self.collectives = {
            name: self._bind(f"tern_{name}", _COLLECTIVE_SIGNATURE)
            for name in _COLLECTIVES if hasattr(self._c, f"tern_{name}")}
        for name, arguments in _LATER_SIGNATURES.items():
            if hasattr(self._c, name):
                self._bind(name, arguments)

    def _bind(self, name: str, arguments: list[Any]) -> Callable[..., int]:
        function = getattr(self._c, name)
        function.argtypes = arguments
        function.restype = c_int32
        setattr(self, name, function)
        return function  # type: ignore[no-any-return]

    # What mypy is told of the functions that _bind sets.
    def __getattr__(self, name: str) -> Callable[..., int]:
        raise AttributeError(f"libtern {self.version} at {self.path} has no function {name}")

    def collective(self, name: str) -> Callable[..., int]:
        """The C function of a collective, or an UnsupportedError that names the version."""
        try:
            return self.collectives[name]
        except KeyError:
            raise UnsupportedError(f"libtern {self.version} at {self.path} has no {name}; install "
                                   "a later Tern") from None

    def later(self, name: str) -> Callable[..., int]:
        """A C function that came later, or an UnsupportedError that names the version."""
        try:
            return getattr(self, name)  # type: ignore[no-any-return]
        except AttributeError as error:
            raise UnsupportedError(f"{error}; install a later Tern") from None

    def failure(self, status: int) -> Exception:
        """The exception of a status other than TERN_OK. Thread: the one whose call failed, before
        its next call into the library."""
        detail = self._c.tern_error_detail().decode(errors="replace")
        return failure(status, self.status_text(status), detail)

    def status_text(self, status: int) -> str:
        """What a status means, and what to do."""
        text: bytes = self._c.tern_strerror(status)
        return text.decode()

    def check(self, status: int) -> None:
        if status != structs.OK:
            raise self.failure(status)


def _candidates() -> list[str]:
    """Where libtern may be: what the user says, else the wheel's own, else the system's."""
    said = os.environ.get("TERN_LIBRARY")
    if said:
        return [said]
    bundled = _BUNDLED / "libtern.so.1"
    return [str(bundled)] if bundled.exists() else ["libtern.so.1"]


@functools.lru_cache(maxsize=1)
def library() -> Library:
    """libtern, loaded on first use. Raises LibraryError with the places that were tried."""
    tried = _candidates()
    try:
        return Library(tried[0])
    except LibraryError as error:
        raise LibraryError(f"{error}. Install Tern's wheel or package, or set TERN_LIBRARY to the "
                           "path of libtern.so") from error


def program(name: str) -> str:
    """The path of `ternd` or `ternctl`: in $TERN_PROGRAMS, else the wheel's own, else in the PATH
    and where packages install daemons. Raises LibraryError if there is none."""
    said = os.environ.get("TERN_PROGRAMS")
    if said:
        path = shutil.which(name, path=said)
    else:
        places = [str(_BUNDLED), os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"]
        path = shutil.which(name, path=os.pathsep.join(places))
    if path is None:
        raise LibraryError(f"the program {name} is not in "
                           f"{said or 'the package, the PATH or /usr/sbin'}; install Tern, or set "
                           "TERN_PROGRAMS to the folder that has it")
    return path
