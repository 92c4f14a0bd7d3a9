"""What can be watched from Python: figures of tensors and groups, the progress line, scalars."""

import io
import os
import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import tern
import tern.tensorboard
from cluster import daemons, run_ranks

COUNT = 1 << 16
RECIPE = "3lc:s=1"


def train(group, tensor, steps=3):
    x = np.random.default_rng(group.rank).standard_normal(COUNT).astype(np.float32)
    for _ in range(steps):
        group.all_reduce(x, out=np.empty_like(x), tensor=tensor).wait()


def on_two_ranks(nodes, work):
    """Runs work(group, tensor) on rank 0, while rank 1 takes part in what train() does."""
    done = threading.Event()

    def rank(group):
        tensor = group.declare("layer", COUNT, role="gradient", recipe=RECIPE)
        train(group, tensor)
        if group.rank == 0:
            try:
                return work(group, tensor)
            finally:
                done.set()
        done.wait()
        return None

    return run_ranks(nodes, 2, rank)[0]


def test_a_tensor_tells_ratio_residual_and_split(two_nodes):
    stats = on_two_ranks(two_nodes, lambda group, tensor: tensor.stats())
    assert (stats.name, stats.ops, stats.recipe.startswith("ef(3lc")) == ("layer", 3, True)
    assert stats.bytes_raw > stats.bytes_sent > 0
    assert stats.ratio == pytest.approx(stats.bytes_raw / stats.bytes_sent)
    assert 0 < stats.residual_ratio < 4 and stats.state_bytes > 0
    assert all(share > 0 for share in (stats.split.encode_ns, stats.split.decode_ns))
    assert sum(stats.split.shares().values()) == pytest.approx(1)
    assert stats.split.total_ns == sum(
        getattr(stats.split, f"{part}_ns") for part in stats.split.shares())


def test_group_client_and_node_tell_the_same(two_nodes):
    def look(group, tensor):
        return tensor.stats(), group.stats(), group.client.stats(), tern.stats(two_nodes[0].socket)

    tensor, group, client, node = on_two_ranks(two_nodes, look)
    assert (group.size, group.node_count, group.state, group.local_ranks, group.error) == (
        2, 2, "running", (0,), "")
    assert group in client.groups and group in node.groups
    row, = group.tensors
    assert (row.name, row.ops, row.bytes_raw, row.bytes_sent, row.recipe) == (
        tensor.name, tensor.ops, tensor.bytes_raw, tensor.bytes_sent, tensor.recipe)
    assert row.split.encode_ns == pytest.approx(tensor.split.encode_ns, abs=1000)
    assert group.total.ops == 3 and group.total.ratio == pytest.approx(tensor.ratio)
    assert node.version and node.uptime_s > 0 and node.plaintext and node.clients >= 1


def test_who_is_waited_for_is_said(two_nodes):
    def look(group, _tensor):
        only_here = group.declare("only here", 8)
        ticket = group.all_reduce(np.ones(8, np.float32), tensor=only_here)
        # The node announces an operation when its lane has taken it. Meanwhile the other rank may
        # be late with what came before.
        while not (said := [each for each in group.stats().waiting if "only here" in each]):
            assert not ticket.test()
        ticket.cancel()
        return said

    sentence, = on_two_ranks(two_nodes, look)
    assert sentence.startswith("all_reduce of only here: waiting for ranks 1 for")


def test_totals_add_and_subtract():
    one = tern.Totals(2, 100, 50, 0.5, tern.StepSplit(1, 2, 3, 4, 5))
    two = one + tern.Totals(1, 10, 10, 0.25, tern.StepSplit(5, 4, 3, 2, 1))
    assert two == tern.Totals(3, 110, 60, 0.5, tern.StepSplit(6, 6, 6, 6, 6))
    assert two - one == tern.Totals(1, 10, 10, 0.5, tern.StepSplit(5, 4, 3, 2, 1))
    assert tern.Totals().ratio == 1 and set(tern.StepSplit().shares().values()) == {0}


def test_without_daemon_or_group_it_says_so(tmp_path, node, monkeypatch):
    with pytest.raises(tern.DaemonAbsentError, match="tern up"):
        tern.stats(tmp_path / "ternd.sock")
    monkeypatch.setenv("TERN_SOCKET", str(tmp_path / "ternd.sock"))
    with pytest.raises(tern.DaemonAbsentError, match=str(tmp_path)):
        tern.stats()
    monkeypatch.setenv("TERN_CONTROL_SOCKET", node.control_socket)
    assert tern.stats().version == tern.stats(tmp_path / "ternd.sock").version
    with tern.Client(node.socket) as client:
        group = client.join(client.mint(), 0, 1)
        assert group.stats().total == tern.Totals()
        group.leave()
        with pytest.raises(tern.ClosedError):
            group.stats()


def test_a_group_that_its_daemon_does_not_know_any_more_is_said():
    with daemons(1) as (node,):
        client = tern.Client(node.socket)
        group = client.join(client.mint(), 0, 1)
        node.kill()
        with pytest.raises(tern.DaemonAbsentError):
            group.stats()
        node.start()
        with pytest.raises(tern.UnknownGroupError, match="join again"):
            group.stats()
        client.disconnect()


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Notebook(io.StringIO):
    """As ipykernel's stream, which is no terminal and understands a carriage return."""

    __module__ = "ipykernel.iostream"


@pytest.mark.parametrize("kind", [Terminal, Notebook])
def test_where_lines_can_be_rewritten_one_is(kind):
    file = kind()
    assert list(tern.progress("abc", every=0, file=file)) == ["a", "b", "c"]
    first, *shown = file.getvalue().split("\r")
    assert first == "" and len(shown) == 3 and shown[-1].endswith("\n")
    assert [line.split(",")[0] for line in shown] == [f"step {n} of 3" for n in (1, 2, 3)]


def test_a_shorter_line_covers_a_longer_one(monkeypatch):
    seconds = iter([0.0, 90_000.0, 90_000.0, 90_000.0, 90_000.001, 90_000.001, 90_000.001])
    monkeypatch.setattr("tern.progress_line.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    file = Terminal()
    progress = tern.progress(total=9, every=0, file=file)
    progress.update()
    progress.update(8)
    longer, shorter = (line.rstrip() for line in file.getvalue().split("\r")[1:])
    assert len(shorter) < len(longer)
    assert file.getvalue().endswith(shorter + " " * (len(longer) - len(shorter)))


def test_elsewhere_it_writes_whole_lines_rarely():
    file = io.StringIO()
    for _ in tern.progress(range(1000), file=file):
        pass
    line, = file.getvalue().splitlines()
    assert line.startswith("step 1000 of 1000, ")
    file = io.StringIO()
    with tern.progress(every=0, file=file) as bar:
        bar.update()
        bar.update(5)
    bar.close()
    assert [line.split(",")[0] for line in file.getvalue().splitlines()] == ["step 1", "step 6"]


def test_the_line_tells_of_the_group_on_rank_0_alone(two_nodes):
    def work(group):
        file, other = io.StringIO(), group.declare("none", 8)
        tensor = group.declare("layer", COUNT, role="gradient", recipe=RECIPE)
        for _ in tern.progress(range(3), group=group, every=0, file=file):
            train(group, tensor, 1)
        assert other.stats().ops == 0
        return file.getvalue()

    shown, silent = run_ranks(two_nodes, 2, work)
    assert silent == ""
    lines = shown.splitlines()
    assert len(lines) == 3
    # Which parts of the time are worth a word depends on what else the machine does.
    figures = re.compile(r"B/s sent, .*x smaller, residual .* \| .*"
                         r"(queue|encode|wire|decode|wait) \d+%")
    assert all(figures.search(line) for line in lines), lines


def test_a_line_without_operations_or_daemon_does_not_stop_the_loop():
    with daemons(1) as (node,):
        client = tern.Client(node.socket)
        group = client.join(client.mint(), 0, 1)
        file = io.StringIO()
        bar = tern.progress(group=group, every=0, file=file)
        bar.update()
        node.kill()
        bar.update()
        file.close()
        bar.update()
        bar.close()
        client.disconnect()
        node.start()
    with pytest.raises(ValueError, match="update"):
        list(tern.progress(file=file))


def test_after_a_daemon_that_did_not_answer_the_line_tells_of_all_since_it_did(monkeypatch):
    seconds = iter(range(100))
    monkeypatch.setattr("tern.progress_line.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    sent = iter([None, 1000, 3000, None, 9000])

    class Group:
        rank = 0

        def stats(self):
            bytes_sent = next(sent)
            if bytes_sent is None:
                raise tern.DaemonLostError("it is busy")
            return SimpleNamespace(total=tern.Totals(bytes_sent, bytes_sent, bytes_sent))

    file = io.StringIO()
    bar = tern.progress(group=Group(), every=0, file=file)
    for _ in range(4):
        bar.update()
    lines = file.getvalue().splitlines()
    bar.close()
    # A line reads the clock twice: there are two seconds between them.
    assert ["sent" in line for line in lines] == [False, True, False, True], lines
    assert "1 kB/s sent" in lines[1] and "1.5 kB/s sent" in lines[3], lines


def test_a_pipe_that_is_closed_does_not_stop_the_loop():
    source = ("import sys, tern\n"
              "for step in tern.progress(range(100), every=0, file=sys.stdout): pass\n"
              "print('done', file=sys.stderr)\n"
              "import os; os._exit(0)\n")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", source], stdout=write, stderr=subprocess.PIPE,
                          text=True)
    os.close(write)
    assert done.stderr == "done\n"


class Board:
    def __init__(self):
        self.scalars = {}

    def add_scalar(self, tag, value, step):
        self.scalars.setdefault(tag, []).append((step, value))


def test_scalars_are_those_of_each_interval(two_nodes):
    def work(group):
        board = Board()
        tensor = group.declare("layer", COUNT, role="gradient", recipe=RECIPE)
        unused = group.declare("unused", COUNT)
        train(group, tensor, 2)
        scalars = tern.tensorboard.Scalars(board, group)
        for step, ops in ((10, 1), (20, 3), (30, 0)):
            train(group, tensor, ops)
            scalars.log(step)
        assert unused.stats().ops == 0
        return board.scalars, tensor.stats()

    scalars, stats = run_ranks(two_nodes, 2, work)[0]
    parts = [f"{part}_ms" for part in stats.split.shares()]
    assert set(scalars) == {f"tern/{what}/{name}" for what in ("ratio", "residual", *parts)
                            for name in ("layer", "all")} | {"tern/sent_mb/all"}
    assert all([step for step, _ in values] == [10, 20] for values in scalars.values())
    assert scalars["tern/ratio/layer"][1][1] == pytest.approx(stats.ratio, rel=0.2)
    assert scalars["tern/residual/layer"][1][1] == pytest.approx(stats.residual_ratio)
    sent = [value for _, value in scalars["tern/sent_mb/all"]]
    assert 0 < sum(sent) < stats.bytes_sent / 1e6 and sent[1] > sent[0]
    assert all(value > 0 for _, value in scalars["tern/encode_ms/layer"])


def test_a_tensor_that_is_declared_anew_counts_from_zero(node):
    with tern.Client(node.socket) as client:
        group = client.join(client.mint(), 0, 1)
        board, tensor = Board(), group.declare("layer", COUNT)
        train(group, tensor, 3)
        scalars = tern.tensorboard.Scalars(board, group)
        tensor.release()
        tensor = group.declare("layer", COUNT)
        train(group, tensor, 1)
        scalars.log(1)
        assert board.scalars["tern/wire_ms/layer"][0][1] >= 0
        assert board.scalars["tern/sent_mb/all"] == [(1, 0.0)]


def test_tensors_without_a_level_have_the_groups(two_nodes):
    def declared(group):
        group.set_level("loss<=0.01")
        tensors = [group.declare("shared", COUNT, role="gradient", recipe="auto"),
                   group.declare("own", COUNT, role="gradient", recipe="auto", level="aggressive")]
        group.set_level("no level")
        with pytest.raises(tern.InvalidArgumentError, match="level is one of lossless"):
            group.declare("wrong", COUNT, role="gradient", recipe="auto")
        with pytest.raises(ValueError, match="1..15 bytes"):
            group.set_level("")
        group.set_level(None)
        tensors.append(group.declare("free", COUNT, role="gradient", recipe="auto"))
        levels = None
        if group.rank == 0:
            levels = {row["name"]: (row["level"], row["allowed_loss"])
                      for row in two_nodes[0].ask("tuner")}
        group.barrier().wait()
        assert len(tensors) == 3
        return levels

    levels = run_ranks(two_nodes, 2, declared)[0]
    assert {name: level for name, (level, _) in levels.items()} == {
        "shared": "bounds", "own": "aggressive", "free": "balanced"}
    assert levels["shared"][1] <= 0.01
