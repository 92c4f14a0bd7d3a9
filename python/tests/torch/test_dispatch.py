"""What PyTorch's dispatcher has to see goes through it, and has the same results."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._pytree import tree_map

from ranks import run_ranks
from tern.torch.backend import has_python_backends

pytestmark = pytest.mark.skipif(not has_python_backends(), reason="from PyTorch 2.14 on")


class Wrapped(torch.Tensor):
    """A tensor without elements of its own: those of `inner` are."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def unwrapped(value):
            return value.inner if isinstance(value, cls) else value

        args, kwargs = tree_map(unwrapped, (args, kwargs or {}))
        return func(*args, **kwargs)


def test_a_mode_sees_operations(two_nodes):
    def work(rank):
        x, parts = torch.full((4,), rank + 1.0), [torch.empty(4) for _ in range(2)]
        with CommDebugMode() as mode:
            dist.all_reduce(x)
            dist.all_gather(parts, x)
            dist.broadcast(x, 0, async_op=True).wait()
        assert mode.get_total_counts() == 3
        assert torch.equal(x, torch.full((4,), 3.0))
        assert all(torch.equal(part, x) for part in parts)
        dist.all_reduce(x)
        assert mode.get_total_counts() == 3 and torch.equal(x, torch.full((4,), 6.0))

    run_ranks(two_nodes, 2, work)


def test_a_tensor_that_unwraps_itself_is_reduced(two_nodes):
    def work(rank):
        inner = torch.full((4,), rank + 1.0)
        dist.all_reduce(Wrapped(inner))
        assert torch.equal(inner, torch.full((4,), 3.0))

    run_ranks(two_nodes, 2, work)


def test_a_distributed_tensor_is_scattered_in_sight_of_a_mode(two_nodes):
    def work(rank):
        with CommDebugMode() as mode:
            part = distribute_tensor(torch.arange(8.0), DeviceMesh("cpu", [0, 1]), [Shard(0)])
        assert mode.get_total_counts() > 0
        assert torch.equal(part.to_local(), torch.arange(4.0) + 4 * rank)

    run_ranks(two_nodes, 2, work)
