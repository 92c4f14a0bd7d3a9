"""Gradients between replicas that are encoded where they are: by tern.cuda, on the emulated driver,
whose device addresses are those of CPU tensors."""

import contextlib
import os

import pytest
import torch
from emulated import driver
from test_device_buckets import on_emulated_gpu
from test_replicas import close, meshes, models
from test_sharded import LOSSY, WIDTH, backward, batch, same, train
from torch import nn
from torch.distributed.fsdp import fully_shard

import tern
import tern.torch
from ranks import RankFailed, answer_of, run_ranks, start_ranks
from tern.cuda import BoundTensor
from tern.torch.shard_averages import DeviceShards


@pytest.fixture(scope="module", autouse=True)
def emulated():
    """A rank that skips by itself would fail the other."""
    driver()


def on_emulated_stream():
    """As on_emulated_gpu(). The processor is the stream that waits: what follows a start finds the
    result, and a failure is told by the ticket alone."""
    on_emulated_gpu()
    real = BoundTensor.all_reduce

    def all_reduce(*arguments, stream_waits, **options):
        assert stream_waits
        ticket = real(*arguments, stream_waits=False, **options)
        with contextlib.suppress(tern.TernError):
            ticket.wait()
        return ticket

    BoundTensor.all_reduce = all_reduce


def shards_of(module):
    """What averages its rows."""
    return module._get_fsdp_state()._fsdp_param_group._all_reduce_hook._shards


def gradients_of(nodes, size, gpus, recipe="int:bits=8", steps=3, **options):
    """Of each rank in each step; those of `gpus` have them on a GPU."""
    def work(rank):
        if rank in gpus:
            on_emulated_stream()
        mesh, replicas = meshes([[0, 2], [1, 3]] if size == 4 else [[0], [1]])
        model, _ = models(mesh)
        compressed = tern.torch.compress(model, recipe, replicas=replicas, **options)
        found = [backward(model, rank, step) for step in range(steps)]
        for block in model[:2]:
            assert isinstance(shards_of(block), DeviceShards) == (len(gpus) == size)
        figures = compressed.device_stats()
        assert (figures is None) == (len(gpus) != size)
        if figures is not None:
            # All else of a block travels as one tensor, and all of the last layer exactly.
            assert figures.operations == steps * (len(LOSSY) + 2)
            assert figures.failures == 0
        assert all(stats.ops == steps for stats in compressed.stats().values())
        return found

    return run_ranks(nodes, size, work)


@pytest.mark.parametrize("recipe", ["int:bits=8", "3lc:s=1"])
@pytest.mark.parametrize("size", [2, 4])
def test_the_bits_are_those_of_the_processor(two_nodes, size, recipe):
    every = set(range(size))
    for found, wanted in zip(gradients_of(two_nodes, size, every, recipe),
                             gradients_of(two_nodes, size, set(), recipe)):
        assert all(map(same, found, wanted))


def test_a_rank_without_a_gpu_decides_for_its_replicas(two_nodes):
    for found, wanted in zip(gradients_of(two_nodes, 2, {0}), gradients_of(two_nodes, 2, set())):
        assert all(map(same, found, wanted))


def test_shards_may_begin_anywhere(two_nodes):
    """Where kernels cannot read."""
    def work(rank):
        on_emulated_stream()
        torch.manual_seed(0)
        mesh, replicas = meshes([[0], [1]])
        model = nn.Sequential(nn.Linear(33, 63, bias=False), nn.Linear(63, 33, bias=False))
        fully_shard(model, mesh=mesh)
        tern.torch.compress(model, "int:bits=8", replicas=replicas,
                            exempt=lambda name, parameter: False)
        x = torch.randn(8, 33, generator=torch.Generator().manual_seed(rank))
        model(x).square().sum().backward()
        # 33 * 63 elements are before it.
        assert shards_of(model)._aligned._copies.keys() == {"1.weight"}
        whole = nn.Sequential(nn.Linear(33, 63, bias=False), nn.Linear(63, 33, bias=False))
        whole.load_state_dict({name: parameter.full_tensor()
                               for name, parameter in model.state_dict().items()})
        for other in range(2):
            x = torch.randn(8, 33, generator=torch.Generator().manual_seed(other))
            (whole(x).square().sum() / 2).backward()
        for found, wanted in zip(model.parameters(), whole.parameters(), strict=True):
            close(found.grad.full_tensor(), wanted.grad, 50)

    run_ranks(two_nodes, 2, work)


def test_a_checkpoint_goes_on_with_the_same_bits(two_nodes, tmp_path):
    def first(rank):
        on_emulated_stream()
        mesh, replicas = meshes([[0], [1]])
        model, _ = models(mesh)
        compressed = tern.torch.compress(model, "3lc:s=1", replicas=replicas)
        train(model, rank, 2)
        torch.save((model.state_dict(), compressed.state_dict()), tmp_path / f"{rank}.pt")
        return train(model, rank, 2, begin=2)

    def second(on_gpu):
        def work(rank):
            if on_gpu:
                on_emulated_stream()
            mesh, replicas = meshes([[0], [1]])
            model, _ = models(mesh)
            compressed = tern.torch.compress(model, "3lc:s=1", replicas=replicas)
            weights, owed = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
            model.load_state_dict(weights)
            compressed.load_state_dict(owed)
            return train(model, rank, 2, begin=2)

        return work

    wanted = run_ranks(two_nodes, 2, first)
    for on_gpu in (True, False):
        for found, expected in zip(run_ranks(two_nodes, 2, second(on_gpu)), wanted):
            assert same(found, expected)


def test_backward_raises_what_its_stream_does_not_know(two_nodes):
    """The ranks disagree in one step, of which only tickets tell; the next one is as ever."""
    def work(rank):
        on_emulated_stream()
        mesh, replicas = meshes([[0], [1]])
        model = fully_shard(nn.Linear(WIDTH, WIDTH, bias=False), mesh=mesh)
        tern.torch.compress(model, "int:bits=8", replicas=replicas)
        real = BoundTensor.all_reduce

        def all_reduce(*arguments, reduction, **options):
            return real(*arguments, reduction="max" if rank == 1 else reduction, **options)

        BoundTensor.all_reduce = all_reduce
        with pytest.raises(tern.TernError, match="ranks disagree.* max"):
            model(batch(rank)).square().sum().backward()
        BoundTensor.all_reduce = real
        return backward(model, rank, 1)

    assert same(*run_ranks(two_nodes, 2, work))


def test_a_replica_that_dies_ends_backward(two_nodes):
    def work(rank):
        on_emulated_stream()
        mesh, replicas = meshes([[0], [1]])
        model, _ = models(mesh)
        tern.torch.compress(model, "int:bits=8", replicas=replicas)
        backward(model, rank)
        loss = model(batch(rank)).square().sum()
        if rank == 1:
            os._exit(1)
        loss.backward()

    ranks = start_ranks(two_nodes, 2, work)
    with pytest.raises(RankFailed, match="RankLostError"):
        answer_of(*ranks[0])
    with pytest.raises(EOFError):
        answer_of(*ranks[1])
