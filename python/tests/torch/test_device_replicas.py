"""Gradients between replicas that are encoded where they are: by tern.cuda, on the emulated driver,
whose device addresses are those of CPU tensors."""

import copy
import datetime
import functools
import os

import pytest
import torch
import torch.distributed as dist
from emulated import device, driver
from test_device_buckets import on_emulated_gpu
from test_replicas import close, meshes, models
from test_sharded import (
    LOSSY,
    WIDTH,
    Block,
    averaged,
    backward,
    batch,
    lines_of_the_log,
    same,
    train,
)
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import tern
import tern.torch
from ranks import RankFailed, answer_of, run_ranks, start_ranks
from tern.cuda import BoundTensor, Device
from tern.torch import on_device
from tern.torch.shard_averages import DeviceShards


@pytest.fixture(scope="module", autouse=True)
def emulated():
    """A rank that skips by itself would fail the other."""
    driver()


def shards_of(module):
    """What averages its rows."""
    return module._get_fsdp_state()._fsdp_param_group._all_reduce_hook._shards


def gradients_of(nodes, size, gpus, recipe="int:bits=8", steps=3, **options):
    """Of each rank in each step; those of `gpus` have them on a GPU."""
    def work(rank):
        if rank in gpus:
            on_emulated_gpu()
        mesh, replicas = meshes([[0, 2], [1, 3]] if size == 4 else [[0], [1]])
        model, _ = models(mesh)
        compressed = tern.torch.compress(model, recipe, replicas=replicas, **options)
        found = [backward(model, rank, step) for step in range(steps)]
        for module in (model, *model[:2]):
            assert isinstance(shards_of(module), DeviceShards) == (len(gpus) == size)
        figures = compressed.device_stats()
        assert (figures is None) == (len(gpus) != size)
        if figures is not None:
            # All else of a module travels as one tensor, which of the last one is all.
            assert figures.operations == steps * (len(LOSSY) + 3)
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
        on_emulated_gpu()
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
        on_emulated_gpu()
        mesh, replicas = meshes([[0], [1]])
        model, _ = models(mesh)
        compressed = tern.torch.compress(model, "3lc:s=1", replicas=replicas)
        train(model, rank, 2)
        torch.save((model.state_dict(), compressed.state_dict()), tmp_path / f"{rank}.pt")
        return train(model, rank, 2, begin=2)

    def second(on_gpu):
        def work(rank):
            if on_gpu:
                on_emulated_gpu()
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


def alone(kind, rank, **options):
    """A model of one module on each node, and the averages of its gradients."""
    torch.manual_seed(0)
    mesh, replicas = meshes([[0], [1]])
    whole = kind()
    model = fully_shard(copy.deepcopy(whole), mesh=mesh)
    return model, whole, tern.torch.compress(model, "int:bits=8", replicas=replicas, **options)


Square = functools.partial(nn.Linear, WIDTH, WIDTH, bias=False)


def test_backward_raises_what_has_failed(two_nodes):
    """The ranks disagree in one step; the next one is as ever."""
    def work(rank):
        on_emulated_gpu()
        model, _, _ = alone(Square, rank)
        real = BoundTensor.all_reduce

        def all_reduce(*arguments, reduction, **options):
            return real(*arguments, reduction="max" if rank == 1 else reduction, **options)

        BoundTensor.all_reduce = all_reduce
        with pytest.raises(tern.TernError, match="ranks disagree.* max"):
            model(batch(rank)).square().sum().backward()
        BoundTensor.all_reduce = real
        return backward(model, rank, 1)

    assert same(*run_ranks(two_nodes, 2, work))


def test_computation_goes_on_while_averages_are_under_way(two_nodes):
    """One rank has started all of them before the other starts the first."""
    def work(rank):
        on_emulated_gpu()
        mesh, replicas = meshes([[0], [1]])
        model, _ = models(mesh)
        compressed = tern.torch.compress(model, "int:bits=8", replicas=replicas)
        backward(model, rank)
        store = dist.distributed_c10d._get_default_store()
        store.set_timeout(datetime.timedelta(seconds=30))
        real, started = BoundTensor.all_reduce, []

        def all_reduce(*arguments, **options):
            if rank == 1:
                store.wait(["all are started"])
            started.append(real(*arguments, **options))
            if rank == 0 and len(started) == len(LOSSY) + 3:
                store.set("all are started", "yes")
            return started[-1]

        BoundTensor.all_reduce = all_reduce
        found = backward(model, rank, 1)
        assert len(started) == len(LOSSY) + 3 and all(ticket.ended for ticket in started)
        assert compressed.device_stats().failures == 0
        return found

    assert same(*run_ranks(two_nodes, 2, work))


def test_more_operations_than_places(two_nodes):
    """Other modules have all of them."""
    def work(rank):
        on_emulated_gpu()
        on_device.open_device = lambda group, place: device(group.client, operations=2)
        mesh, replicas = meshes([[0], [1]])
        torch.manual_seed(0)
        model = nn.Sequential(*(Square() for _ in range(6)))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        compressed = tern.torch.compress(model, "int:bits=8", replicas=replicas)
        for step in range(2):
            found = backward(model, rank, step)
        assert compressed.device_stats().operations == 12
        return found

    assert same(*run_ranks(two_nodes, 2, work))


def test_nothing_is_bound_while_operations_are_under_way(two_nodes):
    def work(rank):
        on_emulated_gpu()
        started, bound = [], []
        start, bind = BoundTensor.all_reduce, Device.bind

        def all_reduce(*arguments, **options):
            started.append(start(*arguments, **options))
            return started[-1]

        def bind_when_idle(self, tensor):
            assert all(ticket.ended for ticket in started)
            bound.append(tensor.name)
            return bind(self, tensor)

        BoundTensor.all_reduce, Device.bind = all_reduce, bind_when_idle
        mesh, replicas = meshes([[0], [1]])
        model, _ = models(mesh)
        tern.torch.compress(model, "int:bits=8", replicas=replicas)
        backward(model, rank)
        assert len(bound) == len(LOSSY) + 3

    run_ranks(two_nodes, 2, work)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = fully_shard(Block(), mesh=meshes([[0], [1]])[0])

    def forward(self, x):
        return self.block(self.block(x))


def test_who_reads_gradients_in_backward_reads_averages(two_nodes):
    """Gradients that are accumulated, hooks of gradients, a module that is used twice."""
    def work(rank):
        on_emulated_gpu()
        model, whole, compressed = alone(Square, rank)
        seen = []
        model.weight.register_post_accumulate_grad_hook(
            lambda parameter: seen.append(parameter.grad.full_tensor().clone()))
        backward(model, rank)
        model(batch(rank, 1)).square().sum().backward()
        wanted = averaged(whole, 2)["weight"].clone()
        close(seen[0], wanted, 50)
        close(seen[1], wanted + averaged(whole, 2, 1)["weight"], 50)
        assert compressed.device_stats().operations == 2
        torch.manual_seed(0)
        model = fully_shard(Twice(), mesh=meshes([[0], [1]])[0])
        torch.manual_seed(0)
        block = Block()
        tern.torch.compress(model, "int:bits=8", replicas=meshes([[0], [1]])[1], name="twice")
        found = backward(model, rank)
        for other in range(2):
            (block(block(batch(other))).square().sum() / 2).backward()
        for name, parameter in block.named_parameters():
            close(found[f"block.{name}"], parameter.grad, 20)

    run_ranks(two_nodes, 2, work)


def test_gradients_of_another_type_are_averages(two_nodes):
    """Which FSDP2 casts behind the hook."""
    def work(rank):
        on_emulated_gpu()
        mesh, replicas = meshes([[0], [1]])
        torch.manual_seed(0)
        whole = Square()
        model = fully_shard(copy.deepcopy(whole).bfloat16(), mesh=mesh,
                            mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
        compressed = tern.torch.compress(model, "int:bits=8", replicas=replicas)
        model(batch(rank).bfloat16()).square().sum().backward()
        assert model.weight.grad.dtype == torch.bfloat16
        close(model.weight.grad.full_tensor().float(), averaged(whole, 2)["weight"], 20)
        assert compressed.device_stats().operations == 1

    run_ranks(two_nodes, 2, work)


def test_gradients_may_be_reduced_outside_of_backward(two_nodes):
    """As pipelines do."""
    def work(rank):
        on_emulated_gpu()
        model, _, compressed = alone(Square, rank)
        hook = model._get_fsdp_state()._fsdp_param_group._all_reduce_hook
        row = torch.full((WIDTH * WIDTH,), 2.0 + rank)
        hook(row)
        close(row, torch.full((WIDTH * WIDTH,), 2.5), 50)
        assert compressed.device_stats().operations == 1
        with pytest.raises(RuntimeError, match="bfloat16.*reduce_dtype=torch.float32"):
            hook(row.bfloat16())

    run_ranks(two_nodes, 2, work)


def test_parameters_that_are_trained_later(two_nodes):
    def work(rank):
        on_emulated_gpu()
        lines = lines_of_the_log()
        mesh, replicas = meshes([[0], [1]])
        model, whole = models(mesh)
        compressed = tern.torch.compress(model, "int:bits=8", replicas=replicas)
        for trained in (False, True):
            for each in (model, whole):
                each[0].up.weight.requires_grad_(trained)
            found, wanted = backward(model, rank, trained), averaged(whole, 2, trained)
            for name in found:
                close(found[name], wanted[name], 20 if name in LOSSY else 1e5)
        assert "other parameters of the module 0 are trained" in lines[-1][1]
        assert {name: stats.ops for name, stats in compressed.stats().items()} == {
            "0.up.weight": 1, "0.down.weight": 1, "1.up.weight": 2, "1.down.weight": 2}

    run_ranks(two_nodes, 2, work)


def test_a_replica_that_dies_ends_backward(two_nodes):
    def work(rank):
        on_emulated_gpu()
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
