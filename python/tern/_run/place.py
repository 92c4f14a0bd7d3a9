"""What a node has for one job: a private folder, on several nodes a daemon in it, and on the first
node a port."""

from __future__ import annotations

import contextlib
import fcntl
import pathlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator

from .._keeper import end_daemon, start_daemon
from .._library import program
from .._own_daemon import locked
from .._places import runtime_folder
from ..client import Client
from ..connecting import connect
from ..errors import LaunchError
from ..launched import write_private

# Of the launcher's own connection, which moves no tensors and keeps the daemon from being idle.
_ARENA_BYTES = 1 << 20


@contextlib.contextmanager
def private_folder() -> Iterator[pathlib.Path]:
    """A folder that is removed at the end. What killed launchers have left is removed now: a folder
    in use is locked."""
    runtime = runtime_folder()
    with contextlib.ExitStack() as stack:
        with locked(runtime):
            for left in runtime.glob("run-*"):
                with contextlib.suppress(OSError), locked(left, wait=False):
                    shutil.rmtree(left)
            folder = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=runtime))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            lock = stack.enter_context((folder / "lock").open("wb"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A port of this machine for a server of the ranks, which the system gives to nobody else while
    the block runs. The server must allow that the address is reused (SO_REUSEADDR), as PyTorch's
    store does: the port is bound here, without anybody who listens."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        yield int(holder.getsockname()[1])


@contextlib.contextmanager
def shared_daemon() -> Iterator[Client]:
    """The node's daemon or the user's own, which does not end while the block runs."""
    with connect(arena_bytes=_ARENA_BYTES) as client:
        yield client


@contextlib.contextmanager
def linked_daemon(folder: pathlib.Path, private: pathlib.Path, address: str,
                  cluster_key: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon with its sockets in `folder`, which links to those of the other nodes by the job's
    key and ends with the block. The key lies in `private` until the daemon has read it."""
    host = f"[{address}]" if ":" in address else address
    key_file = private / "cluster.key"
    write_private(key_file, cluster_key + "\n")
    try:
        with running_daemon(folder, "--listen", f"{host}:0", "--peer-security", "key",
                            "--cluster-key-file", str(key_file)) as daemon:
            key_file.unlink()
            yield daemon
    finally:
        key_file.unlink(missing_ok=True)


@contextlib.contextmanager
def running_daemon(folder: pathlib.Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that serves in the folder, and ends with the block. Raises LaunchError."""
    try:
        daemon = start_daemon(folder, [program("ternd"), *words])
    except OSError as error:
        raise LaunchError(f"this node's daemon cannot be started: {error}") from error
    try:
        yield daemon
    finally:
        end_daemon(daemon)


@contextlib.contextmanager
def job_daemon(folder: pathlib.Path, address: str, cluster_key: str) -> Iterator[Client]:
    """A daemon for this job alone, and a connection to it."""
    with linked_daemon(folder, folder, address, cluster_key):
        with Client(folder / "ternd.sock", arena_bytes=_ARENA_BYTES) as client:
            yield client
