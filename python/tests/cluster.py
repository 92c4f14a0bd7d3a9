"""Daemons of a test, and ranks as threads with a client each."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile
import threading

import tern
from tern._control import ask
from tern._library import program

# The dead are noticed while the test watches.
OPTIONS = ["--listen", "127.0.0.1:0", "--peer-timeout", "2s", "--resume-timeout", "500ms",
           "--heartbeat", "200ms"]


class Daemon:
    """A ternd with sockets of its own. `command`: what is run in place of the package's."""

    def __init__(self, folder, *options, command=()):
        self.command = command or (program("ternd"),)
        self.folder = pathlib.Path(folder)
        self.socket = str(self.folder / "ternd.sock")
        self.control_socket = str(self.folder / "control.sock")
        self.options = [*OPTIONS, *options]
        self.process = None
        self.start()

    def start(self):
        self.folder.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [*self.command, "--socket", self.socket,
             "--control-socket", self.control_socket, *self.options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=(self.folder / "log").open("wb"))
        ended = select.poll()
        pidfd = os.pidfd_open(self.process.pid)
        ended.register(pidfd, select.POLLIN)
        try:
            while not self.serves():
                assert not ended.poll(20), (self.folder / "log").read_text()
        finally:
            os.close(pidfd)

    def serves(self):
        """Whether it answers on both sockets."""
        with contextlib.suppress(OSError), socket.socket(
                socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.connect(self.socket)
            return bool(ask(self.control_socket, "status"))
        return False

    def ask(self, verb):
        return ask(self.control_socket, verb)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def arenas(self):
        """How many arenas of clients it has mapped."""
        return pathlib.Path(f"/proc/{self.process.pid}/maps").read_text().count("/memfd:tern")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


@contextlib.contextmanager
def daemons(count, *options):
    with tempfile.TemporaryDirectory(prefix="tern-python-") as folder:
        started = []
        try:
            for node in range(count):
                started.append(Daemon(f"{folder}/node{node}", *options))
            yield started
        finally:
            for daemon in started:
                daemon.stop()


def run_ranks(nodes, size, work, **join):
    """Runs work(group) in a thread for each rank, rank r at the daemon r mod nodes. What each has
    returned, by rank; the first failure is raised when all have ended."""
    clients = [tern.Client(nodes[rank % len(nodes)].socket) for rank in range(size)]
    results, failures = [None] * size, []
    group_id = clients[0].mint()

    def run(rank):
        try:
            with clients[rank].join(group_id, rank, size, **join) as group:
                results[rank] = work(group)
                group.barrier().wait()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.disconnect()
    if failures:
        raise failures[0]
    return results


def wait_for_end(pid, timeout_ms=None):
    """Returns when the process has ended, whoever started it, or False after the timeout."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ended = select.poll()
    ended.register(pidfd, select.POLLIN)
    try:
        return bool(ended.poll(timeout_ms))
    finally:
        os.close(pidfd)


def started_with(variable):
    """(pid, command line) of the processes whose environment has NAME=VALUE, but for this one."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ")
