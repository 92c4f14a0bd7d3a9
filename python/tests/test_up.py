"""`tern up`, and ranks that something else starts."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import tern
from cluster import wait_for_end
from jobs import SECRET, free_port, listens
from tern._control import ask

PACKAGE = pathlib.Path(tern.__file__).parent.parent
READY = "export TERN_SOCKET="

RANK = """
import numpy, sys, tern
with tern.init(rank=int(sys.argv[1]), size=2, id_file=sys.argv[2]) as group:
    x = numpy.full(1000, group.rank + 1.0)
    group.all_reduce(x).wait()
    print(f"rank {group.rank} of {group.info().node_count} nodes has {x[0]:g}")
"""


class Place:
    """A folder of the test's own, in which it starts commands."""

    def __init__(self, folder):
        self.folder = folder
        self.runtime = folder / "tern"
        self._started = []

    def start(self, words, secret=SECRET, **variables):
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder), "TERN_IDLE_SECONDS": "0",
                       "PYTHONPATH": str(PACKAGE), "TERN_JOB_SECRET": secret, **variables}
        if "TERN_SOCKET" not in variables:
            environment.pop("TERN_SOCKET", None)
        self._started.append(subprocess.Popen(
            [sys.executable, *map(str, words)], env=environment, cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return self._started[-1]

    def up(self, *words, **more):
        return self.start(["-m", "tern", "up", *words], **more)

    def rank(self, rank, socket):
        return self.start(["-c", RANK, rank, self.folder / "group"], TERN_SOCKET=str(socket))

    def kill_all(self):
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def place(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("u"))
    yield place
    place.kill_all()


def socket_of(up):
    """Where it serves, as soon as it does."""
    line = up.stdout.readline()
    if not line.startswith(READY):
        raise AssertionError(line + up.communicate()[1])
    return pathlib.Path(line.removeprefix(READY).strip())


def pid_at(socket):
    return ask(socket.parent / "control.sock", "status")["pid"]


def left(folder):
    """Sockets, keys and folders of jobs below the folder."""
    return [path for pattern in ("*.sock", "*.key", "run-*") for path in folder.rglob(pattern)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_ranks_find_the_daemon_which_ends_by_a_signal_and_leaves_nothing(place, number):
    up = place.up()
    socket = socket_of(up)
    pid = pid_at(socket)
    assert socket == place.runtime / "ternd.sock"
    found = place.start(["-c", "import tern; print(tern.connect().socket)"])
    assert found.communicate() == (f"{socket}\n", "")
    assert pid_at(socket) == pid
    up.send_signal(number)
    assert up.communicate() == ("", "") and up.returncode == 0
    wait_for_end(pid)
    assert not left(place.folder)


def test_a_daemon_in_a_folder_of_its_own_takes_it_along(place):
    for way in ({"words": ["--folder", "job"]},
                {"words": [], "TERN_SOCKET": str(place.folder / "job" / "ternd.sock")}):
        up = place.up(*way.pop("words"), **way)
        socket = socket_of(up)
        assert socket == place.folder / "job" / "ternd.sock"
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        up.terminate()
        assert up.communicate() == ("", "") and up.returncode == 0
        assert not socket.parent.exists()


def test_it_ends_when_idle(place):
    up = place.up("--idle", "0.1")
    socket_of(up)
    assert up.communicate() == ("", "") and up.returncode == 0
    assert not left(place.folder)


def test_a_second_one_is_told_of_the_first(place):
    first = place.up()
    socket = socket_of(first)
    pid = pid_at(socket)
    second = place.up()
    _, error = second.communicate()
    assert second.returncode == 1 and f"serves at {socket} already" in error
    assert pid_at(socket) == pid


def test_waiting_for_it_takes_until_it_serves(place):
    waits = place.up("--wait")
    up = place.up()
    assert waits.communicate() == ("", "") and waits.returncode == 0
    pid_at(socket_of(up))
    late = place.up("--wait", "--timeout", "0", "--folder", "nowhere")
    _, error = late.communicate()
    assert late.returncode == 1 and "start `tern up` on this node" in error
    assert not (place.folder / "nowhere").exists()


def test_a_daemon_that_ends_is_said(place):
    up = place.up()
    os.kill(pid_at(socket_of(up)), signal.SIGKILL)
    _, error = up.communicate()
    assert up.returncode == 1 and "ended with status -9" in error and "ternd.log" in error


def test_a_daemon_ends_with_a_tern_up_that_is_killed(place):
    up = place.up()
    pid = pid_at(socket_of(up))
    up.kill()
    wait_for_end(pid)
    assert not left(place.folder)


def two_nodes(place, *words, **more):
    words = ["--nnodes", "2", "--rdzv", f"127.0.0.1:{free_port()}", *words]
    return [place.up(*words, "--folder", f"node{node}", **more) for node in range(2)]


def test_two_nodes_are_linked_by_a_key_and_end_together(place):
    ups = two_nodes(place)
    sockets = [socket_of(up) for up in ups]
    pids = [pid_at(socket) for socket in sockets]
    status = ask(sockets[0].parent / "control.sock", "status")
    assert (status["peer_security"], status["plaintext"]) == ("key", False)
    assert not list(place.folder.rglob("*.key")), "the key stays in memory"
    for rank, run in enumerate([place.rank(rank, socket) for rank, socket in enumerate(sockets)]):
        assert run.communicate() == (f"rank {rank} of 2 nodes has 3\n", "")
    ups[1].terminate()
    errors = [up.communicate()[1] for up in ups]
    assert [up.returncode for up in ups] == [0, 0]
    assert all("was told to end" in error for error in errors)
    for pid in pids:
        wait_for_end(pid)
    assert not left(place.folder)


def test_two_nodes_end_when_both_have_been_idle(place):
    ups = two_nodes(place, "--idle", "0.1")
    for up in ups:
        socket_of(up)
    for up in ups:
        assert up.communicate() == ("", "") and up.returncode == 0
    assert not left(place.folder)


def test_a_node_that_is_killed_ends_the_daemons_of_the_others(place):
    ups = two_nodes(place)
    pids = [pid_at(socket_of(up)) for up in ups]
    ups[1].kill()
    assert ups[0].communicate()[1] and ups[0].returncode == 1
    for pid in pids:
        wait_for_end(pid)
    # The killed one had no chance to remove its folder: the next command does.
    place.start(["-c", "from tern._run.place import private_folder\n"
                 "with private_folder(): pass"]).communicate()
    assert not left(place.folder)


def test_a_signal_before_the_nodes_have_met_ends_it(place):
    port = free_port()
    up = place.up("--nnodes", "2", "--rdzv", f"127.0.0.1:{port}", "--folder", "node")
    # It listens once its signal handlers are set.
    while not listens(port):
        assert up.poll() is None
    up.terminate()
    assert up.communicate() == ("", "") and up.returncode == 128 + signal.SIGTERM
    assert not (place.folder / "node").exists() and not left(place.folder)


@pytest.mark.parametrize("words, variables, sentence", [
    (["--nnodes", "2"], {}, "--rdzv HOST:PORT"),
    (["--nnodes", "2", "--rdzv", "127.0.0.1:1"], {"secret": ""}, "there is no secret"),
    (["--idle", "-1"], {}, "0 or more"),
    ([], {"TERN_SOCKET": "/nowhere/other.sock"}, "names no ternd.sock"),
    (["--folder", "/proc/nowhere"], {}, "no folder for a daemon"),
    (["--folder", "x" * 100], {}, "too long"),
])
def test_bad_words_are_refused(place, words, variables, sentence):
    up = place.up(*words, **variables)
    out, error = up.communicate()
    assert (up.returncode, out) == (1, "") and sentence in error and "Traceback" not in error
