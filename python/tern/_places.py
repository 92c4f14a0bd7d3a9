"""Where sockets of daemons are."""

from __future__ import annotations

import os
import pathlib
import stat

from .errors import LaunchError

SYSTEM_SOCKET = "/run/tern/ternd.sock"
_CONTROL_SOCKET = "control.sock"

_MAX_SOCKET_PATH_BYTES = 107  # sockaddr_un


def runtime_folder() -> pathlib.Path:
    """$XDG_RUNTIME_DIR/tern, else /tmp/tern-UID: made for this user alone. Raises LaunchError if
    somebody else could write there."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = pathlib.Path(base, "tern") if base else pathlib.Path(f"/tmp/tern-{os.getuid()}")
    private_to_user(folder)
    return folder


def private_to_user(folder: pathlib.Path) -> None:
    """Makes the folder for this user alone, or sees that it is so. Raises LaunchError."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise LaunchError(f"no folder for a daemon of your own: {error}. Set XDG_RUNTIME_DIR to a "
                          "folder of yours, or TERN_SOCKET to a daemon's socket") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise LaunchError(f"{folder} is not a folder of this user alone; remove it, or set "
                          "XDG_RUNTIME_DIR to a folder of yours")
    if len(os.fsencode(folder / "control.sock")) > _MAX_SOCKET_PATH_BYTES:
        raise LaunchError(f"{folder} is too long for the path of a socket; set XDG_RUNTIME_DIR to "
                          "a shorter one")


def control_socket(socket: str | os.PathLike[str] | None) -> pathlib.Path:
    """That of the daemon at `socket`, as of connect(); None: of the daemon that connect() finds."""
    named = os.environ.get("TERN_CONTROL_SOCKET")
    if socket is None and named:
        return pathlib.Path(named)
    said = socket or os.environ.get("TERN_SOCKET")
    if said:
        beside = pathlib.Path(said).parent / _CONTROL_SOCKET
        return pathlib.Path(named) if named and not beside.exists() else beside
    system = pathlib.Path(SYSTEM_SOCKET).parent / _CONTROL_SOCKET
    return system if system.exists() else runtime_folder() / _CONTROL_SOCKET
