"""DTensor and distributed checkpoints over Tern: what they give is what one process gives."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import tern.torch  # noqa: F401
from ranks import run_ranks
from tern.torch.backend import has_python_backends

SIZE = 3


@pytest.mark.parametrize("shape", [(6, 9), (7, 4), (2, 5)], ids=str)
def test_placements_turn_into_each_other(two_nodes, shape):
    """Even shards, uneven ones, and a rank without any."""
    def work(rank):
        mesh = init_device_mesh("cpu", (SIZE,))
        whole = torch.arange(float(shape[0] * shape[1])).view(shape)
        for begin in (Shard(0), Shard(1), Replicate()):
            for end in (Shard(0), Shard(1), Replicate()):
                moved = distribute_tensor(whole, mesh, [begin]).redistribute(mesh, [end])
                assert torch.equal(moved.full_tensor(), whole)
                assert torch.equal(
                    moved.to_local(), distribute_tensor(whole, mesh, [end]).to_local())

    run_ranks(two_nodes, SIZE, work)


def test_products_of_shards_are_reduced(two_nodes):
    def work(rank):
        mesh = init_device_mesh("cpu", (SIZE,))
        torch.manual_seed(0)
        left = torch.randint(-4, 4, (5, 6)).float()
        right = torch.randint(-4, 4, (6, 7)).float()
        product = distribute_tensor(left, mesh, [Shard(1)]) @ distribute_tensor(
            right, mesh, [Shard(0)])
        assert product.placements == (Partial(),)
        assert torch.equal(product.full_tensor(), left @ right)
        assert torch.equal(product.redistribute(mesh, [Shard(0)]).full_tensor(), left @ right)

    run_ranks(two_nodes, SIZE, work)


def test_a_layer_is_parallel_over_the_ranks(two_nodes):
    def work(rank):
        torch.manual_seed(0)
        whole = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4))
        torch.manual_seed(0)
        parallel = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4))
        mesh = init_device_mesh("cpu", (SIZE,))
        parallelize_module(parallel, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        x = torch.randn(5, 8)
        torch.testing.assert_close(parallel(x), whole(x))
        parallel(x).square().sum().backward()
        whole(x).square().sum().backward()
        torch.testing.assert_close(parallel[0].weight.grad.full_tensor(), whole[0].weight.grad)

    run_ranks(two_nodes, SIZE, work)


def sharded(size):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 10)).square().sum().backward()
    optimizer.step()
    return [parameter.full_tensor() for parameter in model.parameters()]


def test_a_distributed_checkpoint_is_read_by_another_number_of_ranks(two_nodes, tmp_path):
    def write(rank):
        model, optimizer = sharded(SIZE)
        step(model, optimizer)
        weights, state = get_state_dict(model, optimizer)
        checkpoint.save({"model": weights, "optimizer": state}, checkpoint_id=tmp_path / "dcp")
        return step(model, optimizer)

    def read(rank):
        model, optimizer = sharded(2)
        step(model, optimizer)
        weights, state = get_state_dict(model, optimizer)
        both = {"model": weights, "optimizer": state}
        checkpoint.load(both, checkpoint_id=tmp_path / "dcp")
        set_state_dict(model, optimizer, model_state_dict=both["model"],
                       optim_state_dict=both["optimizer"])
        return step(model, optimizer)

    wanted = run_ranks(two_nodes, SIZE, write)[0]
    for found in run_ranks(two_nodes, 2, read):
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.skipif(not has_python_backends(),
                    reason="a checkpoint before PyTorch 2.14 asks for a backend in C++")
def test_an_asynchronous_checkpoint_does_not_disturb_the_training(two_nodes, tmp_path):
    def work(rank):
        beside = dist.new_group(backend="tern")
        model, optimizer = sharded(2)
        saved = [parameter.full_tensor() for parameter in model.parameters()]
        weights, _ = get_state_dict(model, optimizer)
        writing = checkpoint.async_save({"model": weights}, checkpoint_id=tmp_path / "dcp",
                                        process_group=beside)
        step(model, optimizer)
        writing.result()
        weights, _ = get_state_dict(model, optimizer)
        checkpoint.load({"model": weights}, checkpoint_id=tmp_path / "dcp")
        for parameter, wanted in zip(model.parameters(), saved, strict=True):
            assert torch.equal(parameter.full_tensor(), wanted)

    run_ranks(two_nodes, 2, work)
