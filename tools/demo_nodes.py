"""Two nodes on one machine for the demonstration: network namespaces joined by a shaped link.

Where namespaces are not allowed, both nodes are on the loopback interface and the link is not shaped.
Everything that is made here is removed by close(); what a killed run left behind is removed first.
"""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

NAMESPACES = ("tern-demo-a", "tern-demo-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
LINK = "tern0"
RATE = "100mbit"
# Smaller than what one compressed step sends, so that the bucket does not carry it for free; with it
# iperf3 measures 92 Mbit/s in both directions at once.
BURST = "16kb"
# The default, 256 KiB, takes 21 ms on this link: with smaller chunks both directions are busy at once.
CHUNK_BYTES = "64KiB"
PORT = 7700
START_SECONDS = 20.0
FOLDER_PREFIX = "tern-demo-"


class DemoError(Exception):
    """Ends the demonstration with a sentence for the user."""


def command(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def die_with_parent():
    """Runs in a child before exec: it is killed when this process ends, whatever ends it."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def hold_lock():
    """A socket name of the kernel's abstract space: freed by the kernel when the process ends."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind("\0tern-demo")
    except OSError as error:
        lock.close()
        raise DemoError("another demonstration is running on this machine") from error
    return lock


def remove_stale_folders():
    """Those of killed runs of this user: who holds the lock is the only one running."""
    for path in pathlib.Path(tempfile.gettempdir()).glob(FOLDER_PREFIX + "*"):
        if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid():
            shutil.rmtree(path, ignore_errors=True)


def remove_namespaces():
    existing = command("ip", "netns", "list", check=False).split()
    for name in NAMESPACES:
        if name in existing:
            for pid in command("ip", "netns", "pids", name, check=False).split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            command("ip", "netns", "delete", name, check=False)


def make_namespaces():
    """Raises OSError where that is not allowed."""
    if not shutil.which("ip") or not shutil.which("tc"):
        raise OSError("the programs ip and tc are not installed")
    remove_namespaces()
    for name in NAMESPACES:
        command("ip", "netns", "add", name)
        command("ip", "-n", name, "link", "set", "lo", "up")
    command("ip", "-n", NAMESPACES[0], "link", "add", LINK, "type", "veth",
            "peer", "name", LINK, "netns", NAMESPACES[1])
    for name, address in zip(NAMESPACES, ADDRESSES):
        command("ip", "-n", name, "address", "add", f"{address}/24", "dev", LINK)
        command("ip", "-n", name, "link", "set", LINK, "up")
        command("tc", "-n", name, "qdisc", "replace", "dev", LINK, "root",
                "tbf", "rate", RATE, "burst", BURST, "latency", "20ms")


class Nodes:
    """Two daemons, each on a node of its own."""

    def __init__(self, programs, logs, loopback):
        self.programs = pathlib.Path(programs)
        self.logs = pathlib.Path(logs)
        self.processes = []
        self.shaped = False
        self.why_not_shaped = "asked for by --loopback"
        self._lock = hold_lock()
        remove_stale_folders()
        # Short, because the path of a Unix socket has 107 bytes at most.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        if loopback:
            return
        self.shaped = True
        try:
            make_namespaces()
        except OSError as error:
            remove_namespaces()
            self.shaped = False
            self.why_not_shaped = str(error)
        except BaseException:
            self.close()
            raise

    def socket(self, node):
        return self.folder / f"node{node}" / "ternd.sock"

    def control_socket(self, node):
        return self.folder / f"node{node}" / "control.sock"

    def start(self, node, name, words):
        """Starts a program on a node. Its stderr goes to a log, its stdout to a pipe."""
        prefix = ["ip", "netns", "exec", NAMESPACES[node]] if self.shaped else []
        with (self.logs / f"{name}.log").open("wb") as log:
            # A session of its own: Ctrl-C reaches this program alone, which then ends the others.
            process = subprocess.Popen(
                prefix + [str(word) for word in words], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                preexec_fn=die_with_parent)
        self.processes.append(process)
        return process

    def log_tail(self, name, lines=15):
        path = self.logs / f"{name}.log"
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        return "\n".join(f"  {name}: {line}" for line in text.strip().splitlines()[-lines:])

    def start_daemons(self):
        daemons = []
        for node in (0, 1):
            (self.folder / f"node{node}").mkdir()
            address = f"{ADDRESSES[node]}:{PORT}" if self.shaped else f"127.0.0.1:{PORT + 1 + node}"
            config = self.folder / f"node{node}" / "ternd.toml"
            config.write_text(
                f'[network]\nlisten = "{address}"\nadvertise = "{address}"\n\n'
                f'[local]\nsocket = "{self.socket(node)}"\n'
                f'control_socket = "{self.control_socket(node)}"\n\n'
                f'[ops]\nchunk_bytes = "{CHUNK_BYTES}"\n', encoding="utf-8")
            daemons.append(self.start(node, f"ternd{node}",
                                      [self.programs / "ternd", "--config", config]))
        for node, daemon in enumerate(daemons):
            self._await_daemon(node, daemon)

    def _await_daemon(self, node, daemon):
        deadline = time.monotonic() + START_SECONDS
        while True:
            if daemon.poll() is not None:
                raise DemoError(f"ternd of node {node} ended with status {daemon.returncode}:\n"
                                + self.log_tail(f"ternd{node}"))
            if self.socket(node).exists():
                status = subprocess.run(
                    [self.programs / "ternctl", "--socket", self.control_socket(node), "status"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    timeout=START_SECONDS, check=False)
                if status.returncode == 0:
                    return
            if time.monotonic() > deadline:
                raise DemoError(f"ternd of node {node} is not ready after {START_SECONDS:.0f} s:\n"
                                + self.log_tail(f"ternd{node}"))
            time.sleep(0.05)

    def link_bytes(self):
        """What both ends have sent on the link so far, all headers included; None if not shaped."""
        if not self.shaped:
            return None
        total = 0
        for name in NAMESPACES:
            rows = json.loads(command("ip", "-n", name, "-s", "-j", "link", "show", LINK))
            total += rows[0]["stats64"]["tx"]["bytes"]
        return total

    def stop(self, processes, seconds=5.0):
        """Ends processes: politely, then by force."""
        for process in processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + seconds
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
            self.processes.remove(process)

    def close(self):
        # Workers before daemons, that is in reverse.
        self.stop(list(reversed(self.processes)))
        if self.shaped:
            remove_namespaces()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()
