"""`tern run`, as a user types it: programs of their own, in runtime folders of the test's."""

import asyncio
import contextlib
import fcntl
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys

import pytest

import tern
from cluster import wait_for_end
from tern._control import ask
from tern._run.coordination import Meeting, identity, take_place
from tern._run.job import words_of
from tern._run.processes import end_of
from tern._run.ranks import Job as RanksJob
from tern._run.rendezvous import meet

PACKAGE = pathlib.Path(tern.__file__).parent.parent
SECRET = "a secret of the test's own"

_held = []

PROGRAM = """
import os, signal, sys, numpy, tern
assert "TERN_JOB_SECRET" not in os.environ
what = sys.argv[1] if len(sys.argv) > 1 else ""
with tern.init() as group:
    x = numpy.full(1000, group.rank + 1.0)
    group.all_reduce(x).wait()
    print(f"rank {group.rank} of {group.size} on node {group.info().node} has {x[0]:g}")
    try:
        group.barrier().wait()
    except tern.GroupLeftError:
        # Rank 1 has failed before this one heard that all have come.
        raise SystemExit(0)
    if what == "fails" and group.rank == 1:
        sys.stderr.write("it fails")
        sys.stderr.flush()
        os._exit(7)
    if what == "stubborn" and group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what in ("fails", "stubborn", "waits"):
        try:
            print("waits")
            if group.rank == 0:
                group.all_reduce(x).wait()
            signal.pause()
        except (KeyboardInterrupt, tern.GroupLeftError):
            # Rank 1 leaves when it is interrupted, which rank 0 may hear of first.
            print("interrupted")
            raise SystemExit(0)
"""


@pytest.fixture
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("r")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    yield Job(folder)
    runtime = folder / "tern"
    assert not list(runtime.glob("run-*")), "a folder of a job is left"
    if (runtime / "control.sock").exists():
        # It ends by itself, soon; the test waits for that, so that none is left.
        try:
            wait_for_end(ask(runtime / "control.sock", "status")["pid"])
        except OSError:
            pass


class Job:
    def __init__(self, folder):
        self.folder = folder

    def start(self, *words, secret=None, launcher=("-m", "tern"), programs=None, **more):
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder), "TERN_IDLE_SECONDS": "0",
                       "PYTHONPATH": str(PACKAGE)}
        environment.pop("TERN_SOCKET", None)
        if secret:
            environment["TERN_JOB_SECRET"] = secret
        if programs:
            environment["TERN_PROGRAMS"] = programs
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, *launcher, "run", *words], text=True,
                                env=environment, cwd=self.folder, **{**streams, **more})

    def launcher(self, change):
        """One in which `change` is made before it runs."""
        (self.folder / "launcher.py").write_text(
            "import sys, tern._run.job as job, tern._run.ranks as ranks\n"
            f"from tern.__main__ import main\n{change}\nsys.exit(main())\n")
        return ["launcher.py"]

    def nodes(self, count, *words, secrets=None):
        rendezvous = f"127.0.0.1:{free_port()}"
        return [self.start("--nnodes", str(count), "--rdzv", rendezvous, *words,
                           secret=secrets[node] if secrets else SECRET) for node in range(count)]


def free_port():
    """One on which nobody else will listen while the tests run: it stays bound, in the way that
    lets a rendezvous listen on it too."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    return holder.getsockname()[1]


def listens(port):
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()
    return any(f":{port:04X} 00000000:0000 0A" in line for line in lines)


def until(stream, text):
    for line in stream:
        if text in line:
            return line
    raise AssertionError(f"no line with {text}")


def test_ranks_meet_and_their_lines_are_prefixed(job):
    out, error = (run := job.start("--nproc", "3", "program.py")).communicate()
    assert (run.returncode, error) == (0, "")
    assert sorted(out.splitlines()) == [
        f"[rank{rank}]: rank {rank} of 3 on node 0 has 6" for rank in range(3)]


@pytest.mark.parametrize("local_size, said, wanted", [(1, None, None), (2, None, "1"),
                                                      (2, "4", "4")])
def test_ranks_that_share_a_node_have_one_thread_unless_told(monkeypatch, local_size, said, wanted):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if said is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    ranks = RanksJob([], local_size, 0, 4, 0, "socket", pathlib.Path("id"), "run")
    assert ranks.environment(0).get("OMP_NUM_THREADS") == wanted


def test_two_jobs_at_once_do_not_notice_each_other(job):
    runs = [job.start("--nproc", "2", "program.py") for _ in range(2)]
    for run in runs:
        out, error = run.communicate()
        assert (run.returncode, error, out.count("of 2 on node 0 has 3")) == (0, "", 2)


def test_a_rank_that_fails_gives_its_status_and_ends_the_others(job):
    out, error = (run := job.start("--nproc", "3", "program.py", "fails")).communicate()
    assert run.returncode == 7
    assert "[rank1]: it fails" in error and "rank 1 ended with status 7" in error


def test_a_rank_that_is_killed_gives_128_and_the_signal(job):
    out, error = (run := job.start("--nproc", "2", "program.py", "stubborn")).communicate()
    assert run.returncode == 128 + signal.SIGKILL
    assert "rank 1 was ended by SIGKILL" in error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_ranks_and_job_and_leaves_nothing(job, number):
    run = job.start("--nproc", "2", "program.py", "waits")
    until(run.stdout, "waits")
    run.send_signal(number)
    run.communicate()
    assert run.returncode == 128 + number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_nodes_meet_ends_the_job_and_leaves_nothing(job, number):
    """Its daemon runs and its folder is there, and the other node has not come so far."""
    port = free_port()
    words = ["--nnodes", "2", "--rdzv", f"127.0.0.1:{port}", "program.py"]
    run = job.start(*words, secret=SECRET, launcher=job.launcher(
        "import tern._run.coordination as nodes; nodes.GRACE_SECONDS = 1e6"))

    async def come():
        node = await meet("127.0.0.1", port, SECRET.encode(), 60)
        await take_place(node, Meeting(2, "127.0.0.1", port, SECRET.encode(), -1, 60,
                                       identity("run", ["program.py"])), 1, False)
        runtime = job.folder / "tern"
        while not list(runtime.glob("run-*/ternd.sock")):
            assert run.poll() is None
        run.send_signal(number)
        await asyncio.to_thread(run.communicate)
        node.close()

    asyncio.run(come())
    assert run.returncode == 128 + number


@pytest.mark.parametrize("missing", [None, OSError])
def test_the_end_of_a_process_is_seen_where_the_system_does_not_tell(monkeypatch, missing):
    if missing is None:
        monkeypatch.delattr(os, "pidfd_open")
    else:
        def refuse(*_):
            raise missing
        monkeypatch.setattr(os, "pidfd_open", refuse)
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(5)"])
    assert asyncio.run(end_of(process)) == 5


@pytest.mark.parametrize("fails", [False, True])
def test_a_second_signal_kills_at_once_ranks_that_take_their_time(job, fails):
    """Two different ones, for two of the same may become one. `fails`: a rank has failed, and the
    others are being ended when the signals come."""
    (job.folder / "deaf.py").write_text(
        "import os, pathlib, signal, sys\n"
        "if os.environ['TERN_RANK'] == '1':\n"
        "    while not pathlib.Path('deaf').exists(): pass\n"
        "    sys.exit(7)\n"
        "for number in (signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n"
        "print('deaf', os.getpid())\n"
        "pathlib.Path('deaf').touch()\n"
        "while True: signal.pause()\n")
    run = job.start("--nproc", "2" if fails else "1", "deaf.py", launcher=job.launcher(
        "job.GRACE_SECONDS = ranks.GRACE_SECONDS = 1e6"))
    pid = int(until(run.stdout, "deaf").split()[-1])
    try:
        if fails:
            until(run.stderr, "rank 1 ended with status 7")
        run.send_signal(signal.SIGTERM)
        run.send_signal(signal.SIGHUP)
        run.communicate()
        assert run.returncode in (128 + signal.SIGTERM, 128 + signal.SIGHUP)
        assert not pathlib.Path(f"/proc/{pid}").exists()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def has_open(pid, path):
    """Whether the process has this file open."""
    for number in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if number.readlink() == path:
                return True
    return False


def end_by_a_signal(run):
    run.terminate()
    assert run.communicate() == ("", "")
    assert run.returncode == 128 + signal.SIGTERM


def test_a_signal_ends_what_waits_for_the_lock_of_another(job):
    runtime = job.folder / "tern"
    runtime.mkdir(mode=0o700)
    with (runtime / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = job.start("program.py")
        while not has_open(run.pid, runtime / "lock"):
            assert run.poll() is None
        end_by_a_signal(run)


def test_a_signal_ends_what_waits_for_a_daemon_that_never_serves(job):
    """The folder of the job is there by then, and must go."""
    os.mkfifo(job.folder / "fifo")
    ternd = job.folder / "ternd"
    ternd.write_text(f"#!/bin/sh\nexec cat {job.folder}/fifo\n")
    ternd.chmod(0o700)
    run = job.start("program.py", programs=str(job.folder))
    with (job.folder / "fifo").open("wb"):  # once it is read
        assert list((job.folder / "tern").glob("run-*"))
        end_by_a_signal(run)


def test_ctrl_c_reaches_the_ranks_and_leaves_nothing(job):
    run = job.start("--nproc", "2", "program.py", "waits")
    until(run.stdout, "waits")
    until(run.stdout, "waits")
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate()
    assert run.returncode == 128 + signal.SIGINT
    assert out.count("interrupted") == 2


def test_a_job_whose_output_nobody_reads_goes_on(job):
    (job.folder / "talks.py").write_text(
        "import sys\nfor _ in range(10_000): print('x' * 100)\nsys.exit(3)\n")
    run = job.start("talks.py")
    run.stdout.close()
    error = run.stderr.read()
    assert run.wait() == 3
    assert "output of the ranks is lost" in error and "Traceback" not in error


@pytest.mark.parametrize("words", ["", "print('x'); "])
def test_a_job_whose_lines_nobody_reads_keeps_its_status(job, words):
    """As with 2>&1 | head: what the launcher itself says is lost too."""
    (job.folder / "talks.py").write_text(f"import sys; {words}sys.exit(3)")
    run = job.start("talks.py", stderr=subprocess.STDOUT)
    run.stdout.close()
    assert run.wait() == 3


def test_no_line_is_lost_at_a_full_pipe_that_does_not_block(job):
    (job.folder / "talks.py").write_text("for number in range(10_000): print(number, 'x' * 100)")
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    run = job.start("talks.py", stdout=writes)
    while select.select([], [writes], [], 0)[1]:
        assert run.poll() is None
    os.close(writes)
    with open(reads) as lines:
        assert [int(line.split()[1]) for line in lines] == list(range(10_000))
    assert run.communicate()[1] == "" and run.returncode == 0


def test_no_line_is_lost_at_a_reader_that_takes_its_time(job):
    """More lines than the pipe holds are on their way when the rank has ended."""
    (job.folder / "talks.py").write_text(
        "import os, sys\nprint('pid', os.getpid(), file=sys.stderr)\n"
        "for number in range(1000): print(number, 'x' * 100)")
    run = job.start("talks.py", launcher=job.launcher("ranks.PIPE_SECONDS = 0.0"))
    wait_for_end(int(until(run.stderr, "pid").split()[-1]))
    assert [int(line.split()[1]) for line in run.stdout] == list(range(1000))
    assert run.communicate()[1] == "" and run.returncode == 0


def test_signals_end_a_job_whose_output_waits_for_a_reader(job):
    """The first ends the ranks, and the second what they have said too."""
    (job.folder / "talks.py").write_text(
        "import os, sys\nprint('pid', os.getpid(), file=sys.stderr)\nwhile True: print('x' * 100)")
    reads, writes = os.pipe()
    run = job.start("talks.py", stdout=writes)
    pid = int(until(run.stderr, "pid").split()[-1])
    while select.select([], [writes], [], 0)[1]:
        assert run.poll() is None
    run.terminate()
    while pathlib.Path(f"/proc/{pid}").exists():
        assert run.poll() is None
    run.send_signal(signal.SIGHUP)
    assert run.wait() == 128 + signal.SIGTERM
    os.close(reads)
    os.close(writes)


def test_a_failure_is_noticed_while_output_waits_for_a_reader(job):
    (job.folder / "talks.py").write_text(
        "import os, sys\n"
        "while os.environ['TERN_RANK'] == '1':\n"
        "    if os.path.exists('go'): sys.exit(7)\n"
        "print('pid', os.getpid(), file=sys.stderr)\n"
        "while True: print('x' * 100)")
    reads, writes = os.pipe()
    run = job.start("--nproc", "2", "talks.py", stdout=writes)
    pid = int(until(run.stderr, "pid").split()[-1])
    while select.select([], [writes], [], 0)[1]:
        assert run.poll() is None
    (job.folder / "go").touch()
    wait_for_end(pid)
    with open(reads) as lines:
        os.close(writes)
        assert "xxx" in lines.read()
    assert run.wait() == 7


def test_a_program_that_is_not_there_is_said(job):
    _, error = (run := job.start("./nothing")).communicate()
    assert run.returncode == 1 and "cannot be started" in error


def test_two_nodes_meet_by_a_secret(job):
    runs = job.nodes(2, "--nproc", "2", "program.py")
    lines = []
    for run in runs:
        out, error = run.communicate()
        assert (run.returncode, error) == (0, "")
        lines += out.splitlines()
    assert sorted(lines) == [
        f"[rank{rank}]: rank {rank} of 4 on node {node} has 10"
        for rank, node in enumerate(sorted(node_of(line) for line in lines))]


def node_of(line):
    return int(re.search(r"node (\d)", line)[1])


def test_a_rank_that_fails_ends_the_job_on_all_nodes(job):
    runs = job.nodes(2, "program.py", "fails")
    errors = [run.communicate()[1] for run in runs]
    assert [run.returncode for run in runs] == [7, 7]
    assert sum("rank 1 ended with status 7" in error for error in errors) == 1
    assert sum("a rank of node 1 has failed" in error for error in errors) == 2


def test_a_node_that_is_killed_ends_the_job_on_the_others(job):
    runs = job.nodes(2, "program.py", "waits")
    for run in runs:
        until(run.stdout, "waits")
    runs[1].kill()
    runs[1].communicate()
    out, error = runs[0].communicate()
    assert runs[0].returncode != 0
    # The killed one had no chance to remove its folder: the next job does.
    job.start("program.py").communicate()


def test_the_daemons_of_several_nodes_are_linked_by_a_key(job):
    runs = job.nodes(2, "program.py", "waits")
    for run in runs:
        until(run.stdout, "waits")
    controls = list((job.folder / "tern").glob("run-*/control.sock"))
    for status in [ask(control, "status") for control in controls]:
        assert (status["peer_security"], status["plaintext"]) == ("key", False)
    assert len(controls) == 2
    runs[0].terminate()
    for run in runs:
        run.communicate()


def test_a_node_too_many_is_told_so_at_once(job):
    """It is that of another job with the same command and secret, for example."""
    words = ["--nnodes", "2", "--rdzv", f"127.0.0.1:{free_port()}", "--timeout", "1e6",
             "program.py", "waits"]
    runs = [job.start(*words, secret=SECRET) for _ in range(2)]
    for run in runs:
        until(run.stdout, "waits")
    out, error = (third := job.start(*words, secret=SECRET)).communicate()
    assert (third.returncode, out) == (1, "")
    assert "is complete: all of its 2 nodes have come" in error and "Give each job a port" in error
    runs[0].terminate()
    for run in runs:
        run.communicate()


@pytest.mark.parametrize("nnodes, words, sentence", [
    ("2", ["program.py", "other"], "which has another command"),
    ("3", ["program.py"], "it is 2 there, and 3 here")])
def test_a_node_of_another_job_is_refused_at_once(job, nnodes, words, sentence):
    """And the job goes on to wait for its own."""
    port = free_port()
    meeting = ["--rdzv", f"127.0.0.1:{port}", "--timeout", "1e6"]
    runs = [job.start("--nnodes", "2", *meeting, "program.py", secret=SECRET)]
    while not listens(port):
        assert runs[0].poll() is None
    other = job.start("--nnodes", nnodes, *meeting, *words, secret=SECRET)
    out, error = other.communicate()
    assert (other.returncode, out) == (1, "")
    assert sentence in error and "Give each job a port of its own in --rdzv" in error
    runs.append(job.start("--nnodes", "2", *meeting, "program.py", secret=SECRET))
    for run in runs:
        assert run.communicate()[1] == "" and run.returncode == 0


def test_nodes_with_one_tern_job_may_have_commands_of_their_own(job, monkeypatch):
    monkeypatch.setenv("TERN_JOB", "training")
    rendezvous = f"127.0.0.1:{free_port()}"
    runs = [job.start("--nnodes", "2", "--rdzv", rendezvous, "program.py", word, secret=SECRET)
            for word in ("one", "other")]
    for run in runs:
        assert run.communicate()[1] == "" and run.returncode == 0


def test_a_job_is_known_by_its_name_else_by_its_words(monkeypatch):
    monkeypatch.delenv("TERN_JOB", raising=False)
    assert words_of([sys.executable, "a.py", "x"]) == words_of(["a.py", "x"])
    words = [["a.py", "x"], ["a.py x"], ["b.py", "x"], ["TERN_JOB", "training"], []]
    assert len({identity("run", each) for each in words} | {identity("up")}) == len(words) + 1
    monkeypatch.setenv("TERN_JOB", "training")
    named = {identity("run", each) for each in words}
    assert len(named) == 1 and identity("up") not in named
    monkeypatch.setenv("TERN_JOB", "evaluation")
    assert identity("run", words[0]) not in named


def test_without_a_secret_nodes_are_refused(job):
    words = ["--nnodes", "2", "--rdzv", "127.0.0.1:1", "program.py"]
    for secret, sentence in ((None, "there is no secret"), ("short", "too short")):
        _, error = (run := job.start(*words, secret=secret)).communicate()
        assert run.returncode == 1 and sentence in error
    (job.folder / "secret").chmod(0o644)
    _, error = job.start("--secret-file", "secret", *words).communicate()
    assert "can be read by other users" in error
    _, error = job.start("--nnodes", "2", "program.py").communicate()
    assert "--rdzv HOST:PORT" in error


def test_nodes_with_different_secrets_refuse_each_other(job):
    runs = job.nodes(2, "--timeout", "1", "program.py", secrets=[SECRET, SECRET + "!"])
    errors = [run.communicate()[1] for run in runs]
    assert [run.returncode for run in runs] == [1, 1]
    assert sum("has not proved the job's secret" in error for error in errors) == 1
    assert sum("1 of 2 nodes have come" in error for error in errors) == 1


def test_strangers_at_the_rendezvous_neither_stop_the_job_nor_learn_of_it(job):
    port = free_port()
    words = ["--nnodes", "2", "--rdzv", f"127.0.0.1:{port}", "program.py"]
    runs = [job.start(*words, secret=SECRET)]
    strangers = []
    while not strangers:
        try:
            strangers.append(socket.create_connection(("127.0.0.1", port)))
        except ConnectionRefusedError:
            assert runs[0].poll() is None
    strangers += [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    heard = b""
    for number, stranger in enumerate(strangers):
        try:
            stranger.sendall([b"", b"GET / HTTP/1.0\r\n\r\n", b"tern rendezvous 1\n" + bytes(32),
                              bytes(100_000)][number % 4])
        except OSError:
            pass  # those that were the oldest are closed by now
    runs.append(job.start(*words, secret=SECRET))
    for run in runs:
        out, error = run.communicate()
        assert (run.returncode, error) == (0, "")
        assert "of 2 on node" in out
    for stranger in strangers:
        try:
            heard = max(heard, stranger.recv(1000), key=len)
        except OSError:
            pass
        stranger.close()
    # Random bytes and a proof at most, which say nothing without the secret.
    assert len(heard) <= 64
