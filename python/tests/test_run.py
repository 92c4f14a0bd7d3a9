"""`tern run` on one node."""

import asyncio
import contextlib
import fcntl
import os
import pathlib
import select
import signal
import subprocess
import sys

import pytest

from cluster import wait_for_end
from jobs import MEETS, SECRET, free_port, until
from tern._run.coordination import Meeting, identity, take_place
from tern._run.processes import end_of
from tern._run.ranks import Job as RanksJob
from tern._run.rendezvous import meet


def ranks_of(local_size):
    return RanksJob([], local_size, 0, 4, 0, "socket", pathlib.Path("id"), "run",
                    ("node0", 29511))


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
    assert ranks_of(local_size).environment(0).get("OMP_NUM_THREADS") == wanted


@pytest.mark.parametrize("said, wanted", [({}, ("node0", "29511")),
                                          ({"MASTER_PORT": "7"}, ("node0", "7")),
                                          ({"MASTER_ADDR": "a", "MASTER_PORT": "7"}, ("a", "7"))])
def test_ranks_hear_where_pytorch_meets_unless_told(monkeypatch, said, wanted):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    has = ranks_of(2).environment(1)
    assert (has["MASTER_ADDR"], has["MASTER_PORT"]) == wanted


def test_ranks_meet_where_pytorch_does(job):
    (job.folder / "meets.py").write_text(MEETS)
    out, error = (run := job.start("--nproc", "3", "meets.py")).communicate()
    assert (run.returncode, error, out.count("127.0.0.1")) == (0, "", 3)


def test_a_program_with_a_file_of_its_own_meets_by_that(job):
    (job.folder / "named.py").write_text(
        "import sys, tern\n"
        "with tern.init(id_file=sys.argv[1], timeout=30) as group:\n"
        "    group.barrier().wait()\n"
        "    print(group.size)\n")
    file = job.folder / "own"
    out, error = (run := job.start("--nproc", "2", "named.py", str(file))).communicate()
    assert (run.returncode, error) == (0, "")
    assert sorted(out.splitlines()) == ["[rank0]: 2", "[rank1]: 2"]
    assert not file.exists()


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


def test_a_rank_may_end_by_a_signal_without_a_name(job):
    (job.folder / "times.py").write_text("import os\nos.kill(os.getpid(), 36)\n")
    _, error = (run := job.start("--nproc", "1", "times.py")).communicate()
    assert run.returncode == 128 + 36
    assert "rank 0 was ended by signal 36" in error


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


@pytest.mark.parametrize("program, mode", [(None, 0), ("#!/bin/sh\n", 0o644), ("nothing", 0o755)],
                         ids=["not there", "not executable", "no program"])
def test_a_program_that_cannot_be_started_is_said(job, program, mode):
    if program is not None:
        (path := job.folder / "program").write_text(program)
        path.chmod(mode)
    _, error = (run := job.start("./program")).communicate()
    assert run.returncode == 1 and "cannot be started" in error
    assert "Traceback" not in error
