"""Groups that are split."""

import gc

import numpy as np
import pytest

import tern
from cluster import daemons, run_ranks
from tern._control import ask
from tern.statistics import GroupStats, Place


def test_a_mesh_has_rows_and_columns(two_nodes):
    def work(group):
        row = group.split(group.rank // 2)
        column = group.split(group.rank % 2, key=-group.rank)
        x, y = np.full(5, float(group.rank)), np.full(5, float(group.rank))
        row.all_reduce(x).wait()
        column.all_reduce(y).wait()
        assert (row.size, row.info().size) == (2, 2)
        return row.rank, column.rank, x[0], y[0]

    assert run_ranks(two_nodes, 4, work) == [(0, 1, 1, 2), (1, 1, 1, 4), (0, 0, 5, 2), (1, 0, 5, 4)]


def test_a_negative_colour_has_no_child(two_nodes):
    def work(group):
        child = group.split(-1 if group.rank == 0 else 0)
        return None if child is None else child.all_reduce(np.ones(3)).wait()[0]

    assert run_ranks(two_nodes, 3, work) == [None, 2, 2]


def test_a_child_outlives_its_parent(two_nodes):
    def work(group):
        parent = group.split(0)
        child = parent.split(0)
        parent.leave()
        return child.all_reduce(np.ones(3)).wait()[0]

    assert run_ranks(two_nodes, 2, work) == [2, 2]


def test_what_is_garbage_together_ends_once(two_nodes):
    """The exception keeps the frames, which keep the group and the connection, which keep it."""
    client = tern.Client(two_nodes[0].socket)
    parent = client.join(client.mint(), 0, 1)
    child = parent.split(0)
    tensor = child.declare("t", 3)
    cycle = [client, parent, child, tensor]
    cycle.append(cycle)
    del client, parent, child, tensor, cycle
    gc.collect()


def test_a_missing_rank_is_named(two_nodes):
    def work(group):
        if group.rank == 0:
            with pytest.raises(tern.WaitTimeoutError, match="waited for rank 1"):
                group.split(0, timeout=0.2)
        group.barrier().wait()
        return group.split(0).size

    assert run_ranks(two_nodes, 2, work) == [2, 2]


def test_a_child_has_figures_of_its_own(two_nodes):
    def work(group):
        row, column = group.split(group.rank // 2), group.split(group.rank % 2)
        steps = 1 + group.rank // 2
        tensor = row.declare("layer", 1 << 14, role="gradient", recipe="3lc:s=1")
        for _ in range(steps):
            row.all_reduce(np.ones(1 << 14, np.float32), tensor=tensor).wait()
        of_row, of_column, of_parent = row.stats(), column.stats(), group.stats()
        assert [each.name for each in of_row.tensors] == ["layer"]
        assert (of_row.total.ops, of_row.size, of_row.node_count) == (steps, 2, 2)
        assert row.rank in of_row.local_ranks and of_row.total.bytes_sent > 0
        assert (of_column.tensors, of_column.size, of_column.node_count) == ((), 2, 1)
        assert (of_parent.tensors, of_parent.size) == ((), 4)
        uids = {each.uid for each in (of_row, of_column, of_parent)}
        of_all = {each.uid for each in tern.stats(group.client.socket).groups}
        assert len(uids) == 3 and uids <= of_all
        row.leave()
        with pytest.raises(tern.ClosedError):
            row.stats()
        return True

    assert all(run_ranks(two_nodes, 4, work))


def test_a_child_is_not_taken_for_another_group_of_its_number():
    with daemons(1) as (node,):
        client = tern.Client(node.socket)
        child = client.join(client.mint(), 0, 1).split(0)
        number = child.stats().number
        node.kill()
        node.start()
        with tern.Client(node.socket) as another:
            groups = [another.join(another.mint(), 0, 1) for _ in range(number)]
            assert groups[-1].stats().number == number
            with pytest.raises(tern.UnknownGroupError, match="join again"):
                child.stats()
        client.disconnect()


def test_an_older_daemon_does_not_tell_children_apart(node, monkeypatch):
    def older(path, verb):
        answer = ask(path, verb)
        for row in answer if isinstance(answer, list) else []:
            for name in ("number", "group_number"):
                row.pop(name, None)
        return answer

    monkeypatch.setattr("tern.statistics.ask", older)
    with tern.Client(node.socket) as client:
        parent = client.join(client.mint(), 0, 1)
        tensor, child = parent.declare("layer", 3), parent.split(0)
        assert [each.name for each in parent.stats().tensors] == [tensor.name]
        with pytest.raises(tern.UnsupportedError, match="older version"):
            child.stats()


def test_what_is_no_number_of_32_bits_is_refused(two_nodes):
    def work(group):
        with pytest.raises(ValueError, match="color=2147483648"):
            group.split(1 << 31)
        with pytest.raises(TypeError):
            group.split(0.5)
        return True

    assert all(run_ranks(two_nodes, 2, work))


def test_the_next_group_of_the_same_id_is_not_this_one():
    def row(state, number):
        return GroupStats(uid="ab", job="job", state=state, error="", size=2, node_count=2,
                          local_ranks=(0,), ops_completed=0, ops_in_flight=0, waiting=(),
                          tensors=(), number=number)

    place = Place(number=7, uid="ab", rank=0, size=2)
    assert place.is_in(row("failed", 7))
    assert not place.is_in(row("joining", 0))
    assert not place.is_in(row("running", 8))
    # An older daemon gives no numbers.
    assert place.is_in(row("running", 0))
