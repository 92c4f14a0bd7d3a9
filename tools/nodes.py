"""Several nodes on one machine: network namespaces joined by shaped links, a ternd in each.

Two nodes are the ends of one link; more of them hang on a bridge. Where namespaces are not allowed, all
nodes are on the loopback interface and no link is shaped. Everything that is made here is removed by
close(); what a killed run of the same name left behind is removed first.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass

from nodes_security import security_settings

INTERFACE = "tern0"
PORT = 7700
START_SECONDS = 20.0


class NodesError(Exception):
    """Ends the program with a sentence for the user."""


@dataclass(frozen=True)
class Link:
    """A rate of each way in the words of tc; None is as fast as the machine."""
    rate: str | None
    burst: str = "256kb"


def command(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def die_with_parent():
    """Runs in a child before exec: it is killed when this process ends, whatever ends it."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def hold_lock(name):
    """A socket name of the kernel's abstract space: freed by the kernel when the process ends."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(f"\0{name}")
    except OSError as error:
        lock.close()
        raise NodesError(f"another {name} is running on this machine") from error
    return lock


def folder_prefix(name):
    """Of nobody else's folders: names of programs are usual words, and some begin like others."""
    return f"tern-nodes.{name}."


def remove_stale_folders(prefix):
    """Those of killed runs of this user: who holds the lock is the only one running."""
    for path in pathlib.Path(tempfile.gettempdir()).glob(prefix + "*"):
        if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid():
            shutil.rmtree(path, ignore_errors=True)


class Network:
    """The namespaces `name`-0, `name`-1, ... and what joins them. Raises OSError where not allowed."""

    def __init__(self, name, count):
        self.name = name
        self.namespaces = [f"{name}-{node}" for node in range(count)]
        self.addresses = [f"10.77.0.{node + 1}" for node in range(count)]
        # Every end of a link that sends towards a node or away from one.
        self._ends = []
        if not shutil.which("ip") or not shutil.which("tc"):
            raise OSError("the programs ip and tc are not installed")
        self.remove()
        try:
            self._make()
        except BaseException:
            self.remove()
            raise

    def _make(self):
        for namespace, address in zip(self.namespaces, self.addresses):
            command("ip", "netns", "add", namespace)
            command("ip", "-n", namespace, "link", "set", "lo", "up")
        if len(self.namespaces) == 2:
            first, second = self.namespaces
            self._join(first, INTERFACE, second, INTERFACE)
        else:
            switch = f"{self.name}-switch"
            command("ip", "netns", "add", switch)
            command("ip", "-n", switch, "link", "add", "bridge0", "type", "bridge")
            command("ip", "-n", switch, "link", "set", "bridge0", "up")
            for node, namespace in enumerate(self.namespaces):
                self._join(namespace, INTERFACE, switch, f"port{node}")
                command("ip", "-n", switch, "link", "set", f"port{node}", "master", "bridge0")
        for namespace, address in zip(self.namespaces, self.addresses):
            command("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", INTERFACE)

    def _join(self, first, first_end, second, second_end):
        command("ip", "-n", first, "link", "add", first_end, "type", "veth",
                "peer", "name", second_end, "netns", second)
        for end in ((first, first_end), (second, second_end)):
            command("ip", "-n", end[0], "link", "set", end[1], "up")
            self._ends.append(end)

    def shape(self, link):
        for namespace, end in self._ends:
            command("tc", "-n", namespace, "qdisc", "delete", "dev", end, "root", check=False)
            if link.rate:
                command("tc", "-n", namespace, "qdisc", "add", "dev", end, "root",
                        "tbf", "rate", link.rate, "burst", link.burst, "latency", "20ms")

    def bytes_sent(self):
        """What the nodes have sent so far, all headers included."""
        total = 0
        for namespace in self.namespaces:
            rows = json.loads(command("ip", "-n", namespace, "-s", "-j", "link", "show", INTERFACE))
            total += rows[0]["stats64"]["tx"]["bytes"]
        return total

    def remove(self):
        for line in command("ip", "netns", "list", check=False).splitlines():
            namespace = line.split()[0] if line.split() else ""
            if not re.fullmatch(rf"{re.escape(self.name)}-(\d+|switch)", namespace):
                continue
            for pid in command("ip", "netns", "pids", namespace, check=False).split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            command("ip", "netns", "delete", namespace, check=False)


class Nodes:
    """Processes on the nodes of a network, among them a daemon each.

    `name` is that of the program that uses them: one of a name runs at a time. `settings` is TOML that
    every daemon gets besides its addresses, `daemon_options` are words of its command line. `mode`,
    plaintext, tls or key, is how daemons that are started from then on know each other.
    """

    def __init__(self, name, programs, logs, *, count=2, link=Link(None), loopback=False, settings="",
                 mode="plaintext", daemon_options=()):
        self.programs = pathlib.Path(programs)
        self.logs = pathlib.Path(logs)
        self.count = count
        self.settings = settings
        self.daemon_options = list(daemon_options)
        self.mode = mode
        self.processes = []
        self.network = None
        self.why_no_network = "asked for by --loopback"
        self._lock = hold_lock(name)
        remove_stale_folders(folder_prefix(name))
        # Short, because the path of a Unix socket has 107 bytes at most.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=folder_prefix(name)))
        if loopback:
            return
        try:
            self.network = Network(name, count)
            self.network.shape(link)
        except OSError as error:
            if self.network:
                self.network.remove()
            self.network = None
            self.why_no_network = str(error)
        except BaseException:
            self.close()
            raise

    def address(self, node):
        return self.network.addresses[node] if self.network else "127.0.0.1"

    def socket(self, node):
        return self.folder / f"node{node}" / "ternd.sock"

    def control_socket(self, node):
        return self.folder / f"node{node}" / "control.sock"

    def start(self, node, name, words):
        """Starts a program on a node. Its stderr goes to a log, its stdout to a pipe."""
        prefix = ["ip", "netns", "exec", self.network.namespaces[node]] if self.network else []
        with (self.logs / f"{name}.log").open("wb") as log:
            # A session of its own: Ctrl-C reaches this program alone, which then ends the others.
            process = subprocess.Popen(
                prefix + [str(word) for word in words], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                preexec_fn=die_with_parent)
        self.processes.append(process)
        return process

    def outputs_of(self, ranks):
        """What programs of start() have printed, by name, when all have ended. Raises NodesError with the
        ends of their logs if one has failed."""
        outputs = [process.communicate()[0] for process in ranks.values()]
        if any(process.returncode for process in ranks.values()):
            raise NodesError("a rank has failed:\n" + "\n".join(map(self.log_tail, ranks)))
        return dict(zip(ranks, outputs))

    def log_tail(self, name, lines=15):
        path = self.logs / f"{name}.log"
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        return "\n".join(f"  {name}: {line}" for line in text.strip().splitlines()[-lines:])

    def start_daemons(self):
        daemons = []
        for node in range(self.count):
            folder = self.folder / f"node{node}"
            folder.mkdir(exist_ok=True)
            address = f"{self.address(node)}:{PORT if self.network else PORT + 1 + node}"
            security = security_settings(self.mode, self.programs, self.folder, self.address(node),
                                         node)
            config = folder / "ternd.toml"
            config.write_text(
                f'[network]\nlisten = "{address}"\nadvertise = "{address}"\n\n'
                f'[local]\nsocket = "{self.socket(node)}"\n'
                f'control_socket = "{self.control_socket(node)}"\n\n'
                f"[security]\n{security}\n{self.settings}",
                encoding="utf-8")
            daemons.append(self.start(node, f"ternd{node}",
                                      [self.programs / "ternd", "--config", config,
                                       *self.daemon_options]))
        for node, daemon in enumerate(daemons):
            self._await_daemon(node, daemon)
        return daemons

    def _await_daemon(self, node, daemon):
        deadline = time.monotonic() + START_SECONDS
        while True:
            if daemon.poll() is not None:
                raise NodesError(f"ternd of node {node} ended with status {daemon.returncode}:\n"
                                + self.log_tail(f"ternd{node}"))
            if self.socket(node).exists():
                status = subprocess.run(
                    [self.programs / "ternctl", "--socket", self.control_socket(node), "status"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    timeout=START_SECONDS, check=False)
                if status.returncode == 0:
                    return
            if time.monotonic() > deadline:
                raise NodesError(f"ternd of node {node} is not ready after {START_SECONDS:.0f} s:\n"
                                + self.log_tail(f"ternd{node}"))
            time.sleep(0.05)

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
        if self.network:
            self.network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()
