"""Tensors of a GPU through copies. Here CPU tensors take their place: all are copied but copies.

The tests of the collectives run once more that way.
"""

import inspect

import pytest
import test_collectives
import test_sharded
import torch
import torch.distributed as dist

from ranks import run_ranks
from tern.torch import staging
from tern.torch.collectives import Collectives

_TESTS = {name: test for module in (test_collectives, test_sharded)
          for name, test in vars(module).items()
          if name.startswith("test_") and list(inspect.signature(test).parameters) == ["two_nodes"]}


@pytest.fixture
def copied(monkeypatch):
    """How many copies there have been, in this process: ranks are forked and count their own."""
    copies = []

    def empty_like(tensor):
        copies.append(torch.empty(tensor.shape, dtype=tensor.dtype))
        return copies[-1]

    def is_on_gpu(tensor):
        storage = tensor.untyped_storage().data_ptr()
        return all(copy.untyped_storage().data_ptr() != storage for copy in copies)

    monkeypatch.setattr(staging, "empty_like", empty_like)
    monkeypatch.setattr(staging, "is_on_gpu", is_on_gpu)
    monkeypatch.setattr(staging, "finish_copies", lambda tensors: list(tensors))
    return copies


@pytest.mark.parametrize("name", _TESTS)
def test_as_on_the_processor(two_nodes, copied, name):
    _TESTS[name](two_nodes)


def test_what_is_read_and_written(two_nodes, copied):
    def work(rank):
        source, output = torch.full((4,), float(rank)), torch.full((8,), -1.0)
        dist.all_gather_into_tensor(output, source)
        assert output.tolist() == [0.0] * 4 + [1.0] * 4
        assert len(copied) == 2
        value = torch.full((3,), 1.0 + rank)
        dist.all_reduce(value)
        assert value.tolist() == [3.0] * 3 and len(copied) == 3  # one copy, read and written
        if rank == 0:
            dist.send(value, 1)
        else:
            dist.recv(value.zero_(), 0)
        assert value.tolist() == [3.0] * 3
        work = dist.all_reduce(value, async_op=True)
        work.wait()
        assert work.result()[0] is value

    run_ranks(two_nodes, 2, work)


def test_every_operation_takes_them():
    """Those that are left have no tensors, or call another one."""
    wrapped = {name for name, method in vars(Collectives).items() if hasattr(method, "__wrapped__")}
    public = {name for name, method in vars(Collectives).items()
              if inspect.isfunction(method) and not name.startswith("_")}
    assert public - wrapped == {"allreduce_sparse", "barrier", "gather_into_tensor",
                                "gather_single", "rank"}


def test_a_short_receive_leaves_the_rest(two_nodes, copied):
    def work(rank):
        if rank == 0:
            dist.send(torch.tensor([1.0, 2.0]), 1)
        else:
            value = torch.full((5,), 9.0)
            dist.recv(value, 0)
            assert value.tolist() == [1.0, 2.0, 9.0, 9.0, 9.0]

    run_ranks(two_nodes, 2, work)


def test_an_input_that_is_an_output_too(two_nodes, copied):
    def work(rank):
        outputs = [torch.full((3,), float(rank)) for _ in range(2)]
        dist.all_gather(outputs, outputs[rank])
        assert [each.tolist() for each in outputs] == [[0.0] * 3, [1.0] * 3]

    run_ranks(two_nodes, 2, work)


def test_what_fails_before_it_is_submitted_writes_nothing(two_nodes, copied):
    def work(rank):
        value = torch.full((4,), 5.0)
        with pytest.raises(ValueError):
            dist.all_gather_into_tensor(torch.zeros(7), value)
        assert staging.current.get() is None
        dist.all_reduce(value)
        assert value.tolist() == [10.0] * 4

    run_ranks(two_nodes, 2, work)
