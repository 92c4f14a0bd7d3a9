"""Daemons that keep what recipes owe for the next job (state_ttl): each group of ranks goes on with
its own. Ranks 0 and 2 are on one node, 1 and 3 on the other."""

import pytest
import test_compression
import test_serving
import torch
import torch.distributed as dist
from test_sharded import backward, models_on
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

import tern.torch
from cluster import daemons
from ranks import run_ranks

RECIPE = "3lc:s=1"
PAIRS = [[0, 1], [2, 3]]


@pytest.fixture(scope="module")
def keeping_nodes():
    with daemons(2, "--state-ttl", "1h") as nodes:
        yield nodes


def by_ddp(rank, name):
    groups = [dist.new_group(pair) for pair in PAIRS]
    torch.manual_seed(0)
    model = DistributedDataParallel(test_compression.Layers(), process_group=groups[rank // 2])
    tern.torch.compress(model, recipe=RECIPE, name=name)
    return lambda step: test_compression.train(model, rank, 1, first=step)[0]


def by_fsdp(rank, name):
    """Each pair has a model of its own."""
    model, _ = models_on(DeviceMesh("cpu", PAIRS, mesh_dim_names=("pairs", "shards"))["shards"])
    tern.torch.compress(model, recipe=RECIPE, name=name)
    return lambda step: backward(model, rank, step)


def by_replicas(rank, name):
    mesh = DeviceMesh("cpu", [[0, 2], [1, 3]], mesh_dim_names=("replicas", "shards"))
    model, _ = models_on(mesh["shards"])
    tern.torch.compress(model, recipe=RECIPE, name=name, replicas=mesh["replicas"].get_group())
    return lambda step: backward(model, rank, step)


def by_replicas_of_pairs(rank, name):
    """Each pair has a model of its own, which each rank has whole."""
    groups = [dist.new_group(pair) for pair in PAIRS]
    mesh = DeviceMesh("cpu", [[0], [1], [2], [3]], mesh_dim_names=("replicas", "shards"))
    model, _ = models_on(mesh["shards"])
    tern.torch.compress(model, recipe=RECIPE, name=name, replicas=groups[rank // 2])
    return lambda step: backward(model, rank, step)


@pytest.mark.parametrize("kind", [by_ddp, by_fsdp, by_replicas, by_replicas_of_pairs])
def test_each_group_goes_on_with_what_it_owes(keeping_nodes, kind):
    def job(name, steps):
        def work(rank):
            step_of = kind(rank, name)
            return [step_of(step) for step in steps]

        return run_ranks(keeping_nodes, 4, work)

    wanted = [steps[2:] for steps in job(f"{kind.__name__}-whole", range(4))]
    job(kind.__name__, range(2))
    for found, expected in zip(job(kind.__name__, range(2, 4)), wanted):
        test_compression.same(found, expected)


def test_a_model_of_all_ranks_keeps_its_name(keeping_nodes):
    def work(rank):
        model = test_compression.model_of()
        compressed = tern.torch.compress(model, recipe=RECIPE)
        return {tensor.name for tensor in compressed._buckets.tensors.values()}

    for names in run_ranks(keeping_nodes, 2, work):
        assert names == {f"ddp/layers.{layer}.weight" for layer in range(4)}


def test_replicas_that_are_all_ranks_keep_the_name(keeping_nodes):
    def work(rank):
        mesh = DeviceMesh("cpu", [[0], [1]], mesh_dim_names=("replicas", "shards"))
        model, _ = models_on(mesh["shards"])
        compressed = tern.torch.compress(model, recipe=RECIPE,
                                         replicas=mesh["replicas"].get_group())
        backward(model, rank, 0)
        return [tensor.name for tensor in compressed._tensors.values()]

    for names in run_ranks(keeping_nodes, 2, work):
        assert names and all(name.startswith("ddp/") for name in names)


def test_a_parameter_server_takes_nothing_over(keeping_nodes):
    """What is owed was of the model of the job before."""
    def job(learns):
        def work(rank):
            model = test_serving.network()
            server = tern.torch.ParameterServer(model, test_serving.sgd, push_recipe=RECIPE,
                                                pull_recipe="int:bits=4")
            if learns:
                test_serving.train(server, model, rank, range(3))
                return
            before = [parameter.detach().clone() for parameter in model.parameters()]
            for _ in range(3):
                server.zero_grad()
                server.step()
            test_serving.same(list(model.parameters()), before)

        run_ranks(keeping_nodes, 2, work)

    job(True)
    job(False)
