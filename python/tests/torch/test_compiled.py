"""torch.compile() of programs whose operations are Tern's."""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from test_compression import WIDTH, gradients, model_of
from test_sharded import gradients as sharded_gradients
from test_sharded import models
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tern.torch
from ranks import run_ranks
from tern.torch.backend import has_python_backends
from tern.torch.collectives import Collectives
from tern.torch.dispatch import ALL_NAMES


def batch(rank, step):
    draw = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, WIDTH, generator=draw)


@pytest.mark.parametrize("recipe", [None, "3lc:s=1"])
def test_a_compiled_model_has_the_gradients_of_one_that_is_not(two_nodes, recipe):
    """In four steps: DDP orders its buckets anew behind the first."""
    def work(rank):
        found = []
        for name in ("plain", "compiled"):
            model = model_of()
            if recipe:
                tern.torch.compress(model, recipe=recipe, name=name)
            called = torch.compile(model, backend="eager") if name == "compiled" else model
            for step in range(4):
                model.zero_grad()
                called(batch(rank, step)).square().sum().backward()
                found.append(gradients(model))
        for one, other in zip(found[:4], found[4:]):
            for parameter in one:
                torch.testing.assert_close(one[parameter], other[parameter])

    run_ranks(two_nodes, 2, work)


@pytest.mark.parametrize("recipe", [None, "3lc:s=1"])
def test_a_step_is_compiled_with_its_backward_pass(two_nodes, recipe):
    def work(rank):
        torch.manual_seed(0)
        # What a batch normalization learns of its inputs is broadcast in each step.
        model = DistributedDataParallel(nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)))
        if recipe:
            tern.torch.compress(model, recipe=recipe)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        @torch.compile(backend="eager")
        def train(x):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()

        for step in range(3):
            train(batch(rank, step))
        return [parameter.detach() for parameter in model.parameters()]

    first, second = run_ranks(two_nodes, 2, work)
    for one, other in zip(first, second):
        assert torch.equal(one, other)


@pytest.mark.parametrize("options", [{}, {"recipe": "3lc:s=1", "gather_recipe": "none(bf16)"}])
def test_a_sharded_model_is_compiled(two_nodes, options):
    def work(rank):
        found = []
        for name in ("plain", "compiled"):
            model, _ = models(2)
            if options:
                tern.torch.compress(model, name=name, **options)
            called = torch.compile(model, backend="eager") if name == "compiled" else model
            for step in range(3):
                model.zero_grad()
                called(batch(rank, step)).square().sum().backward()
                found.append(sharded_gradients(model))
        for one, other in zip(found[:3], found[3:]):
            for parameter in one:
                torch.testing.assert_close(one[parameter], other[parameter])

    run_ranks(two_nodes, 2, work)


def test_a_compiled_function_calls_collectives(two_nodes):
    def work(rank):
        @torch.compile(backend="eager")
        def function(x):
            y = x * 2
            dist.all_reduce(y)
            dist.broadcast(x, 1)
            parts = [torch.empty(3) for _ in range(2)]
            dist.all_gather(parts, y + x)
            dist.all_reduce(y, async_op=True).wait()
            dist.barrier()
            gathered = torch.zeros(6)
            if hasattr(dist, "gather_single"):
                dist.gather_single(x, gathered if rank == 0 else None)
            else:
                gathered[3 * rank:3 * rank + 3] = x
            if rank == 0:
                dist.send(y, 1)
            else:
                dist.recv(y)
            dist.all_reduce(gathered)
            return parts[0] + parts[1] + y + gathered[:3] + gathered[3:]

        return [function(torch.full((3,), rank + 1.0)).tolist() for _ in range(2)]

    # Both ranks have 6 of the sum and 2 of the broadcast, 12 of the second sum, and 2 of each part
    # that is gathered.
    assert run_ranks(two_nodes, 2, work) == [[[32.0] * 3] * 2] * 2


def test_every_operation_of_a_group_is_left_untraced():
    public = {name for name in vars(Collectives) if not name.startswith("_")}
    assert public - {"rank"} <= set(ALL_NAMES)


@pytest.mark.skipif(not has_python_backends(), reason="from PyTorch 2.14 on")
def test_a_group_of_several_backends_in_a_compiled_function(two_nodes):
    def work(rank):
        group = dist.new_group(backend="cpu:tern,cuda:gloo")

        @torch.compile(backend="eager")
        def function(x):
            dist.all_reduce(x, group=group)
            return x + 1

        return function(torch.ones(3)).tolist()

    assert run_ranks(two_nodes, 2, work) == [[3.0] * 3] * 2


def test_who_compiles_nothing_does_not_wait_for_the_import_of_dynamo(node):
    program = ("import sys, torch, torch.distributed as dist, tern.torch\n"
               "dist.init_process_group('tern', store=dist.HashStore(), rank=0, world_size=1)\n"
               "dist.all_reduce(torch.ones(3))\n"
               "assert 'torch._dynamo' not in sys.modules\n")
    subprocess.run([sys.executable, "-c", program], check=True,
                   env={**os.environ, "TERN_SOCKET": node.socket})
