"""tern.torch with tensors of a real GPU, where this machine has one. All ranks use the same."""

import os
import pathlib

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tern.torch
from ranks import RankFailed, answer_of, run_ranks, start_ranks
from tern.torch import on_device
from tern.torch.device_buckets import DeviceBuckets

# Asking PyTorch would start CUDA in the process that forks the ranks.
pytestmark = pytest.mark.skipif(not pathlib.Path("/dev/nvidiactl").exists(),
                                reason="there is no GPU")
DEVICE = "cuda:0"
COUNT = 100_003


def values(rank, seed=0, count=COUNT):
    draw = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randn(count, generator=draw)


def collectives(place):
    """The results of collectives on tensors that are made by `place`."""
    rank, size = dist.get_rank(), dist.get_world_size()
    found = {}

    def note(name, *tensors):
        found[name] = [tensor.cpu().clone() for tensor in tensors]

    for operation in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
        x = place(values(rank))
        dist.all_reduce(x, operation)
        note(f"all_reduce {operation}", x)
    x = place(values(rank, 1))
    dist.broadcast(x, 1)
    note("broadcast", x)
    x = place(values(rank, 2))
    dist.reduce(x, 0)
    note("reduce", *([x] if rank == 0 else []))
    out = place(torch.zeros(size * COUNT))
    dist.all_gather_into_tensor(out, place(values(rank, 3)))
    note("all_gather_into_tensor", out)
    outs = [place(torch.zeros(COUNT)) for _ in range(size)]
    dist.all_gather(outs, place(values(rank, 4)))
    note("all_gather", *outs)
    out = place(torch.zeros(1000))
    dist.reduce_scatter_tensor(out, place(values(rank, 5, 1000 * size)))
    note("reduce_scatter_tensor", out)
    out = place(torch.zeros(1000 * size))
    dist.all_to_all_single(out, place(values(rank, 6, 1000 * size)))
    note("all_to_all_single", out)
    out = place(torch.zeros(COUNT))
    dist.scatter(out, [place(values(rank, 7 + i)) for i in range(size)] if rank == 0 else None)
    note("scatter", out)
    if rank == 0:
        dist.send(place(values(rank, 9)), 1)
    elif rank == 1:
        out = place(torch.zeros(COUNT))
        dist.recv(out, 0)
        note("recv", out)
    x = place(values(rank, 10)).bfloat16()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    note("async", x)
    work = dist.all_reduce(x, async_op=True)
    note("future", work.get_future().wait()[0])
    return found


def test_collectives_have_the_results_of_the_processor(two_nodes):
    def work(rank):
        on_gpu = collectives(lambda tensor: tensor.to(DEVICE))
        on_processor = collectives(lambda tensor: tensor)
        for name, wanted in on_processor.items():
            for one, other in zip(on_gpu[name], wanted, strict=True):
                assert torch.equal(one, other), name

    run_ranks(two_nodes, 2, work)


def model_of():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.LayerNorm(256), nn.Linear(256, 256),
                         nn.ReLU(), nn.Linear(256, 64)).to(DEVICE)


def gradients_of(model, rank, steps=4):
    found = []
    for step in range(steps):
        model.zero_grad()
        x = values(rank, step, 32 * 256).view(32, 256).to(DEVICE)
        model(x).square().mean().backward()
        found += [parameter.grad.cpu() for parameter in model.parameters()]
    return found


def assert_same_bits(encoded, copied):
    """Of the tensors of each rank."""
    for ones, others in zip(encoded, copied, strict=True):
        assert all(map(torch.equal, ones, others)) and len(ones) == len(others)


@pytest.mark.parametrize("recipe", ["raw", "int:bits=8", "int:bits=4", "3lc:s=1", "none(bf16)"])
def test_ddp_has_the_bits_of_copies(two_nodes, recipe):
    def by(on_gpu):
        def work(rank):
            torch.use_deterministic_algorithms(True)
            model = DistributedDataParallel(model_of(), bucket_cap_mb=0.3)
            on_device.is_gpu = lambda place: on_gpu
            compressed = tern.torch.compress(model, recipe=recipe)
            assert isinstance(compressed._buckets, DeviceBuckets) == on_gpu
            found = gradients_of(model, rank)
            assert all(stats.ops == 4 for stats in compressed.stats().values())
            return found

        return run_ranks(two_nodes, 2, work)

    # Of the same name: it decides which node owns what.
    assert_same_bits(by(True), by(False))


def test_a_checkpoint_goes_on(two_nodes):
    def work(rank):
        torch.use_deterministic_algorithms(True)
        model = DistributedDataParallel(model_of())
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
        gradients_of(model, rank, 2)
        state = compressed.state_dict()
        first = gradients_of(model, rank, 2)
        compressed.load_state_dict(state)
        for one, other in zip(gradients_of(model, rank, 2), first, strict=True):
            assert torch.equal(one, other)

    run_ranks(two_nodes, 2, work)


def test_fsdp2(two_nodes):
    def work(rank):
        model = model_of()
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(model)
        tern.torch.compress(model, recipe="int:bits=8")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for step in range(10):
            optimizer.zero_grad()
            x = values(rank, step % 2, 32 * 256).view(32, 256).to(DEVICE)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]

    run_ranks(two_nodes, 2, work)


@pytest.mark.parametrize("recipe", ["int:bits=8", "3lc:s=1"])
def test_replicas_of_fsdp2_have_the_bits_of_copies(two_nodes, recipe):
    """Each node has one rank, and all of the model."""
    def by(on_gpu):
        def work(rank):
            torch.use_deterministic_algorithms(True)
            mesh = DeviceMesh("cuda", [[0], [1]], mesh_dim_names=("replicas", "shards"))
            model = model_of()
            for layer in model:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer, mesh=mesh["shards"])
            fully_shard(model, mesh=mesh["shards"])
            on_device.is_gpu = lambda place: on_gpu
            compressed = tern.torch.compress(model, recipe=recipe,
                                             replicas=mesh["replicas"].get_group())
            found = []
            for step in range(4):
                model.zero_grad()
                x = values(rank, step, 32 * 256).view(32, 256).to(DEVICE)
                model(x).square().mean().backward()
                found += [parameter.grad.full_tensor().cpu() for parameter in model.parameters()]
            assert (compressed.device_stats() is not None) == on_gpu
            assert all(stats.ops == 4 for stats in compressed.stats().values())
            return found

        return run_ranks(two_nodes, 2, work)

    assert_same_bits(by(True), by(False))


def test_a_rank_that_dies_ends_backward(two_nodes):
    def work(rank):
        model = DistributedDataParallel(model_of())
        tern.torch.compress(model, recipe="int:bits=8")
        gradients_of(model, rank, 1)
        if rank == 1:
            os._exit(1)
        gradients_of(model, rank, 1)

    ranks = start_ranks(two_nodes, 2, work)
    with pytest.raises(RankFailed, match="RankLostError"):
        answer_of(*ranks[0])
    with pytest.raises(EOFError):
        answer_of(*ranks[1])
