"""Batches: what they return, what they refuse, and that they are submitted again."""

import numpy as np
import pytest

import tern
from cluster import run_ranks


def both(two_nodes, work):
    return run_ranks(two_nodes, 2, work)


@pytest.mark.collective("all_gather")
def test_a_batch_gives_what_its_operations_do(two_nodes):
    def work(group):
        arrays = [np.full(10, float(i + group.rank)) for i in range(100)]
        batch = group.batch()
        for array in arrays:
            batch.add("all_reduce", array)
        batch.add("all_gather", np.array([group.rank]))
        batch.add("broadcast", np.array([7 * group.rank]), root=1)
        assert len(batch) == 102
        results = batch.submit().wait()
        assert all(result is array for result, array in zip(results, arrays))
        return [x[0] for x in arrays], results[100].tolist(), results[101].tolist()

    assert both(two_nodes, work) == [([2.0 * i + 1 for i in range(100)], [0, 1], [7])] * 2


def test_a_batch_is_submitted_again_and_meets_single_operations(two_nodes):
    def work(group):
        x, y = np.ones(3), np.ones(5)
        batch = group.batch().add("all_reduce", x).add("all_reduce", y)
        for _ in range(3):
            if group.rank == 0:
                batch.submit().wait()
            else:
                tickets = [group.all_reduce(x), group.all_reduce(y)]
                for ticket in tickets:
                    ticket.wait()
        return x[0], y[4]

    assert both(two_nodes, work) == [(8, 8)] * 2


def test_tensors_are_looked_up_at_each_submission(two_nodes):
    def work(group):
        x = np.ones(4, np.float32)
        tensor = group.declare("t", 4)
        batch = group.batch().add("all_reduce", x, tensor=tensor)
        batch.submit().wait()
        tensor.release()
        with pytest.raises(tern.ClosedError):
            batch.submit()
        return x[0]

    assert both(two_nodes, work) == [2, 2]


def test_one_bad_operation_refuses_all(two_nodes):
    def work(group):
        x = np.ones(4)
        batch = group.batch().add("all_reduce", x).add("all_reduce", x)
        with pytest.raises(tern.InvalidArgumentError, match="operation 1 of the batch"):
            batch.submit()
        with pytest.raises(ValueError, match="none of all_reduce"):
            group.batch().add("barrier", x)
        with pytest.raises(ValueError, match="has no root"):
            group.batch().add("all_reduce", x, root=1)
        with pytest.raises(ValueError, match="no operations"):
            group.batch().submit()
        many = group.batch()
        for _ in range(513):
            many.add("all_reduce", np.ones(1))
        with pytest.raises(tern.InvalidArgumentError, match="max_ops_in_flight is"):
            many.submit()
        return group.all_reduce(x).wait()[0]

    assert both(two_nodes, work) == [2, 2]
