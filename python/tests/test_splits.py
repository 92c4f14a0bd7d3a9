"""Groups that are split."""

import gc

import numpy as np
import pytest

import tern
from cluster import run_ranks


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


def test_what_is_no_number_of_32_bits_is_refused(two_nodes):
    def work(group):
        with pytest.raises(ValueError, match="color=2147483648"):
            group.split(1 << 31)
        with pytest.raises(TypeError):
            group.split(0.5)
        child = group.split(0)
        with pytest.raises(tern.UnsupportedError, match="no id"):
            child.stats()
        child.leave()
        return True

    assert all(run_ranks(two_nodes, 2, work))
