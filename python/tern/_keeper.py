"""Keeps one daemon: starts it, and ends it when nobody has been connected for a while.

    python -m tern._keeper FOLDER TERND IDLE_SECONDS READY_FD

READY_FD is told "ready" when the daemon serves, else why it does not. The daemon ends with its
keeper, whatever ends that, and takes its sockets along.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time

from ._control import ask
from ._own_daemon import locked
from ._waits import SignalPipe, ended_by, pause

_POLL_SECONDS = 1.0
_START_POLL_SECONDS = 0.01
_END_SECONDS = 10.0
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_LOG_TAIL_BYTES = 2000


def end_with_parent() -> None:
    """In a child before exec: the kernel ends it when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def start_daemon(folder: pathlib.Path, command: list[str]) -> subprocess.Popen[bytes]:
    """Starts ternd with sockets and log in the folder, for this user alone, and returns when it
    serves. Raises OSError with the end of its log if it does not.

    Thread: it must live as long as the daemon is to.
    """
    log = folder / "ternd.log"
    with log.open("wb") as stderr:
        daemon = subprocess.Popen(
            [*command, "--socket", folder / "ternd.sock", "--socket-mode", "0600",
             "--control-socket", folder / "control.sock", "--control-socket-mode", "0600"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, cwd="/",
            start_new_session=True, preexec_fn=end_with_parent)
    try:
        while daemon.poll() is None:
            if _serves(folder):
                return daemon
            pause(_START_POLL_SECONDS)
    except BaseException:
        # Nobody would end it before its parent ends.
        end_daemon(daemon)
        raise
    text = log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
    raise OSError(f"it ended with status {daemon.returncode}: {text}")


def end_daemon(daemon: subprocess.Popen[bytes]) -> None:
    """Ends it politely, so that it takes its sockets along, or by force."""
    daemon.terminate()
    try:
        daemon.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _serves(folder: pathlib.Path) -> bool:
    try:
        ask(folder / "control.sock", "version")
        return (folder / "ternd.sock").exists()
    except (OSError, ValueError):
        return False


def idle(folder: pathlib.Path) -> bool:
    """Whether no program is connected to the daemon that serves in the folder."""
    try:
        return bool(ask(folder / "control.sock", "status")["clients"] == 0)
    except (OSError, ValueError):
        return False  # it ends, or is busy


def _keep(folder: pathlib.Path, daemon: subprocess.Popen[bytes], idle_seconds: float) -> None:
    """Returns when the daemon is to end, with the lock held until it has."""
    idle_since = time.monotonic()
    while daemon.poll() is None:
        pause(min(_POLL_SECONDS, max(idle_seconds, 0.01)))
        if not idle(folder):
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since >= idle_seconds:
            try:
                with locked(folder, wait=False):
                    if idle(folder):
                        daemon.terminate()
                        daemon.wait()
                        return
            except BlockingIOError:
                pass  # somebody connects
            idle_since = time.monotonic()


def _main(folder: pathlib.Path, ternd: str, idle_seconds: float, ready_fd: int) -> None:
    os.chdir("/")
    with open(ready_fd, "w", encoding="utf-8") as ready:
        try:
            daemon = start_daemon(folder, [ternd, "--listen", "127.0.0.1:0"])
        except OSError as error:
            ready.write(str(error))
            return
        ready.write("ready")
    try:
        _keep(folder, daemon, idle_seconds)
    finally:
        daemon.terminate()
        daemon.wait()


if __name__ == "__main__":
    if os.fork() == 0:
        with ended_by(SignalPipe([signal.SIGTERM]), SystemExit):
            _main(pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
