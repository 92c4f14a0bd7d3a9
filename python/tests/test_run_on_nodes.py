"""`tern run` on several nodes, which meet at a rendezvous."""

import re
import socket
import sys

import pytest

from jobs import MEETS, SECRET, free_port, listens, until
from tern._control import ask
from tern._run.coordination import identity
from tern._run.job import words_of


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


def test_ranks_of_all_nodes_meet_where_pytorch_does(job):
    (job.folder / "meets.py").write_text(MEETS)
    lines = []
    for run in job.nodes(2, "--nproc", "2", "meets.py"):
        out, error = run.communicate()
        assert (run.returncode, error) == (0, "")
        lines += [line.split(": ")[1] for line in out.splitlines()]
    assert len(lines) == 4 and len(set(lines)) == 1


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
