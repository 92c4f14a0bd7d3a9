"""connect() and init() of a user who has no daemon: programs in folders of their own."""

import json
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

import tern
from cluster import wait_for_end
from jobs import free_port
from tern import launched
from tern._control import ask
from tern.errors import LaunchError
from tern.launched import place

PACKAGE = pathlib.Path(tern.__file__).parent.parent

RANK = """
import json, numpy, sys, tern
with tern.init() as group:
    x = numpy.full(1000, group.rank + 1.0)
    group.all_reduce(x).wait()
    print(json.dumps([group.rank, group.size, x[0]]))
"""


@pytest.fixture
def home(tmp_path_factory, monkeypatch):
    """A runtime folder of the test's own, and no daemon."""
    folder = tmp_path_factory.mktemp("r")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("TERN_IDLE_SECONDS", "0")
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    monkeypatch.delenv("TERN_SOCKET", raising=False)
    return folder / "tern"


def daemon_pid(folder):
    return ask(folder / "control.sock", "status")["pid"]


def start(environment, source=RANK):
    return subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})


def test_connect_starts_a_daemon_that_ends_when_idle_and_leaves_nothing(home):
    with tern.connect() as client:
        pid = daemon_pid(home)
        group = client.join(client.mint(), 0, 1)
        assert group.all_reduce(np.ones(3)).wait().sum() == 3
        with tern.connect():
            assert daemon_pid(home) == pid
        assert (home.stat().st_mode & 0o777, (home / "ternd.sock").stat().st_mode & 0o777) == (
            0o700, 0o600)
    wait_for_end(pid)
    assert not list(home.glob("*.sock"))
    with tern.connect():
        assert daemon_pid(home) != pid
        pid = daemon_pid(home)
    wait_for_end(pid)


def test_a_daemon_that_cannot_be_started_leaves_nothing_open(home):
    (home / "keeper.log").mkdir(parents=True)
    home.chmod(0o700)
    with pytest.raises(LaunchError, match="keeper.log"):
        tern.connect()
    open_before = os.listdir("/proc/self/fd")
    with pytest.raises(LaunchError):
        tern.connect()
    assert len(os.listdir("/proc/self/fd")) == len(open_before)


def test_programs_that_start_at_once_find_one_daemon(home, monkeypatch):
    monkeypatch.setenv("TERN_IDLE_SECONDS", "1")
    # Each stays until all have come, however late the last one is.
    source = ("import sys, tern; client = tern.connect(); "
              "from tern._control import ask; from tern._own_daemon import runtime_folder; "
              "print(ask(runtime_folder() / 'control.sock', 'status')['pid'], flush=True); "
              "sys.stdin.read()")
    programs = [start({}, source) for _ in range(4)]
    pids = {int(program.stdout.readline()) for program in programs}
    for program in programs:
        program.communicate()
    assert len(pids) == 1
    wait_for_end(pids.pop())


def test_a_daemon_ends_with_its_keeper(home, monkeypatch):
    monkeypatch.setenv("TERN_IDLE_SECONDS", "600")
    with tern.connect():
        pid = daemon_pid(home)
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        os.kill(int(stat[1]), 9)
        wait_for_end(pid)


def test_a_daemon_that_cannot_start_says_why(home, monkeypatch):
    monkeypatch.setenv("TERN_PROGRAMS", "/bin")
    with pytest.raises(tern.LibraryError, match="the program ternd is not in /bin"):
        tern.connect()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home.parent / ("x" * 90)))
    (home.parent / ("x" * 90)).mkdir()
    with pytest.raises(tern.LaunchError, match="too long"):
        tern.connect()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "nowhere"))
    with pytest.raises(tern.LaunchError, match="XDG_RUNTIME_DIR"):
        tern.connect()
    with pytest.raises(tern.LaunchError):
        tern.connect(start=False)


def test_ternctl_of_the_wheel_asks_the_users_own_daemon(home):
    words = [sys.executable, "-c", "from tern.__main__ import ternctl; ternctl()", "status"]
    with tern.connect():
        pid = daemon_pid(home)
        asked = subprocess.run(words, capture_output=True, text=True)
        assert f"pid {pid}" in asked.stdout and asked.returncode == 0
    wait_for_end(pid)
    asked = subprocess.run(words, capture_output=True, text=True)
    assert asked.returncode != 0 and str(home / "control.sock") in asked.stderr
    asked = subprocess.run(words, capture_output=True, text=True,
                           env={**os.environ, "TERN_PROGRAMS": "/bin"})
    assert asked.returncode == 1 and "ternctl is not in /bin" in asked.stderr


def test_a_folder_that_others_can_write_is_refused(home):
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    with pytest.raises(tern.LaunchError, match="this user alone"):
        tern.connect()


@pytest.mark.parametrize("variables", [
    {"RANK": "{}", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"},
    {"OMPI_COMM_WORLD_RANK": "{}", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
     "PMIX_NAMESPACE": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
    {"PMI_RANK": "{}", "PMI_SIZE": "2", "TERN_GROUP_ID_FILE": "{folder}/id"},
    {"SLURM_PROCID": "{}", "SLURM_NTASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
     "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0"},
], ids=["torchrun", "mpirun", "pmi", "slurm"])
def test_init_finds_the_ranks_of_a_launcher(home, variables):
    ranks = [start({name: text.replace("{folder}", str(home.parent)).replace("{}", str(rank))
                    for name, text in variables.items()}) for rank in (1, 0)]
    said = sorted(json.loads(rank.communicate()[0]) for rank in ranks)
    assert said == [[0, 2, 3.0], [1, 2, 3.0]]
    assert not list(home.glob("group-*")) and not (home.parent / "id").exists()


def of_a_start_before(node, what):
    """An id that a killed start has left: its group is known to the daemon still, was known to one
    that has been restarted, or to one that is gone."""
    with tern.Client(node.socket) as client:
        scheme, host, port, uid, secret = client.mint().split(":")
    if what == "forgotten":
        uid = "0" * len(uid)
    elif what == "unreachable":
        port = str(free_port())
    return ":".join((scheme, host, port, uid, secret))


@pytest.mark.parametrize("what", ["known", "forgotten", "unreachable"])
def test_init_goes_over_from_the_id_of_a_start_before(two_nodes, tmp_path, monkeypatch, what):
    """Rank 1 comes first, and joins under that id before rank 0 has written another."""
    path, joins, sizes = tmp_path / "id", threading.Event(), []
    path.write_text(of_a_start_before(two_nodes[0], what))
    read = launched.read_private

    def read_and_say(*arguments):
        text = read(*arguments)
        joins.set()
        return text

    def rank(number):
        with tern.Client(two_nodes[number].socket) as client, tern.init(
                rank=number, size=2, id_file=path, client=client, timeout=30) as group:
            group.barrier().wait()
            sizes.append(group.size)

    monkeypatch.setattr(launched, "read_private", read_and_say)
    other = threading.Thread(target=rank, args=(1,))
    other.start()
    joins.wait()
    rank(0)
    other.join()
    assert sizes == [2, 2] and not path.exists()


@pytest.mark.parametrize("another", [None, "the id of another start"])
def test_a_rank_0_that_gives_up_removes_its_id_alone(node, tmp_path, monkeypatch, another):
    path, join = tmp_path / "id", launched.Group

    def join_late(*arguments):
        assert path.exists()
        if another:
            path.write_text(another)
        return join(*arguments)

    monkeypatch.setattr(launched, "Group", join_late)
    with tern.Client(node.socket) as client, pytest.raises(
            tern.WaitTimeoutError, match="waited for rank 1"):
        tern.init(rank=0, size=2, id_file=path, client=client, timeout=0.5)
    assert (path.read_text() if path.exists() else None) == another


def test_a_rank_whose_rank_0_never_comes_says_whom_it_waited_for(node, tmp_path):
    path = tmp_path / "id"
    path.write_text(of_a_start_before(node, "known"))
    with tern.Client(node.socket) as client, pytest.raises(
            tern.WaitTimeoutError, match="waited for rank 0"):
        tern.init(rank=1, size=2, id_file=path, client=client, timeout=1.5)


class Joins:
    """In place of the Group of tern.init(): notes the joins, and has some of them fail."""

    def __init__(self, failures, before=lambda: None):
        self.seconds, self._failures, self._before = [], list(failures), before
        self.tried = threading.Event()

    def __call__(self, client, group_id, options, owns_client):
        self.seconds.append(options.timeout_ms / 1000)
        self.tried.set()
        self._before()
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure
        return tern.Group(client, group_id, options, owns_client)


def test_a_rank_that_waits_joins_a_few_times_only(node, tmp_path, monkeypatch):
    """Joins twice as long each time, and a last one that is no shorter than the one before."""
    path, now = tmp_path / "id", [0.0]

    def pass_time():
        now[0] += joins.seconds[-1]

    failures = [tern.WaitTimeoutError(f"join {i}") for i in range(9)]
    joins = Joins(failures, pass_time)
    path.write_text("any")
    monkeypatch.setattr(launched, "Group", joins)
    monkeypatch.setattr(launched.time, "monotonic", lambda: now[0])
    with tern.Client(node.socket) as client, pytest.raises(tern.WaitTimeoutError, match="join 5"):
        tern.init(rank=1, size=2, id_file=path, client=client, timeout=60)
    assert joins.seconds == [1, 2, 4, 8, 16, 29]


@pytest.mark.parametrize("loser", [0, 1])
def test_a_group_that_is_lost_as_it_begins_is_joined_again(two_nodes, tmp_path, monkeypatch,
                                                           loser):
    path, sizes, kinds = tmp_path / "id", [], {}

    def join(client, group_id, options, owns_client):
        if options.rank not in kinds:
            kinds[options.rank] = Joins([tern.RankLostError("rank 2 has gone")]
                                        if options.rank == loser else [])
        return kinds[options.rank](client, group_id, options, owns_client)

    def rank(number):
        with tern.Client(two_nodes[number].socket) as client, tern.init(
                rank=number, size=2, id_file=path, client=client, timeout=30) as group:
            group.barrier().wait()
            sizes.append(group.size)

    monkeypatch.setattr(launched, "Group", join)
    other = threading.Thread(target=rank, args=(1,))
    other.start()
    rank(0)
    other.join()
    assert sizes == [2, 2] and len(kinds[loser].seconds) == 2


@pytest.mark.parametrize("said", [tern.RankTakenError, tern.WrongSizeError])
def test_what_a_start_before_says_of_a_rank_counts_only_until_another_id(
        two_nodes, tmp_path, monkeypatch, said):
    path, ids = tmp_path / "id", [of_a_start_before(two_nodes[0], "known") for _ in range(2)]
    joins = Joins([said("join 0"), said("join 1")])
    path.write_text(ids[0])
    monkeypatch.setattr(launched, "Group", joins)
    errors = []

    def rank():
        with tern.Client(two_nodes[1].socket) as client, pytest.raises(said) as error:
            tern.init(rank=1, size=2, id_file=path, client=client, timeout=30)
        errors.append(str(error.value))

    other = threading.Thread(target=rank)
    other.start()
    joins.tried.wait()
    launched.write_private(path, ids[1])
    other.join()
    assert errors == ["join 1"] and len(joins.seconds) == 2


def test_init_alone_is_a_group_of_one(home):
    assert json.loads(start({}).communicate()[0]) == [0, 1, 1.0]


def test_init_says_what_is_missing(home, monkeypatch):
    with pytest.raises(tern.LaunchError, match="no rank"):
        place({"RANK": "2", "WORLD_SIZE": "2"})
    with pytest.raises(tern.LaunchError, match="both"):
        tern.init(rank=1)
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    with pytest.raises(tern.LaunchError, match="TERN_GROUP_ID_FILE"):
        tern.init()
    with pytest.raises(tern.WaitTimeoutError, match="rank 0"):
        tern.init(id_file=home / "id", timeout=0.05)
    (home / "noise").write_bytes(b"\xff")
    for path in (home, home / "noise"):
        with pytest.raises(tern.LaunchError, match="cannot be read.*name a new file"):
            tern.init(id_file=path)
    with pytest.raises(tern.LaunchError, match="cannot be written.*name a new file"):
        tern.init(rank=0, size=2, id_file=home / "nowhere" / "id")
