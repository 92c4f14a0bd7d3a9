"""tern.torch.compress() between the replicas of a model that fully_shard() shards inside of a node.

Of four ranks, 0 and 2 are on one node and 1 and 3 on the other: each pair shares the model.
"""

import copy
import os
import signal

import pytest
import torch
import torch.distributed as dist
from test_sharded import (
    LOSSY,
    RAISED,
    WIDTH,
    Block,
    Partly,
    accumulate,
    averaged,
    backward,
    batch,
    gradients,
    lines_of_the_log,
    same,
    train,
)
from test_sharded import models_on as models
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import tern
import tern.torch
from ranks import run_ranks, start_ranks

NODES = [[0, 2], [1, 3]]


def meshes(nodes=NODES):
    """Of this rank: that of its node, and the group of its replicas."""
    mesh = DeviceMesh("cpu", nodes, mesh_dim_names=("replicas", "shards"))
    return mesh["shards"], mesh["replicas"].get_group()


def close(found, wanted, parts=1e5):
    """To a part of the largest."""
    largest = wanted.abs().max().item()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=largest / parts)


@pytest.mark.parametrize("backend", ["tern", "gloo"])
def test_gradients_are_those_of_all_ranks(two_nodes, backend):
    def work(rank):
        mesh, replicas = meshes()
        model, whole = models(mesh)
        compressed = tern.torch.compress(model, recipe="int:bits=8", replicas=replicas)
        found, wanted = backward(model, rank), averaged(whole, 4)
        for name in wanted:
            close(found[name], wanted[name], 50 if name in LOSSY else 1e5)
        assert {name for name in wanted if not torch.allclose(
            found[name], wanted[name], rtol=1e-5, atol=wanted[name].abs().max() / 1e4)} == LOSSY
        assert set(compressed.stats()) == LOSSY
        assert all(stats.ops == 1 for stats in compressed.stats().values())
        assert compressed.ratio() > 3
        assert compressed.device_stats() is None
        return found

    first, *others = run_ranks(two_nodes, 4, work, backend=backend)
    for other in others:
        assert same(first, other)


def test_auto_loses_nothing_at_a_level_without_loss(two_nodes):
    def work(rank):
        mesh, replicas = meshes()
        model, whole = models(mesh)
        compressed = tern.torch.compress(model, level="lossless", replicas=replicas)
        for step in range(3):
            found, wanted = backward(model, rank, step), averaged(whole, 4, step)
            for name in wanted:
                close(found[name], wanted[name])
        assert compressed._gains._steps == 3

    run_ranks(two_nodes, 4, work)


def test_a_model_may_be_whole_on_each_node(two_nodes):
    """One rank on each node, and what is owed arrives later."""
    def work(rank):
        mesh, replicas = meshes([[0], [1]])
        model, whole = models(mesh)
        tern.torch.compress(model, recipe="3lc:s=1", replicas=replicas)
        wanted = averaged(whole, 2)["0.up.weight"]
        total, worst = torch.zeros_like(wanted), []
        for step in range(1, 9):
            total += backward(model, rank)["0.up.weight"]
            worst.append(((total / step - wanted).norm() / wanted.norm()).item())
        assert worst[-1] < worst[0] / 2, worst

    run_ranks(two_nodes, 2, work)


def test_rows_of_other_types_and_without_all_gradients(two_nodes):
    def work(rank):
        lines = lines_of_the_log()
        mesh, replicas = meshes()
        model, _ = models(mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        compressed = tern.torch.compress(model, recipe="int:bits=8", name="mixed",
                                         replicas=replicas)
        backward(model, rank)
        assert set(compressed.stats()) == LOSSY
        torch.manual_seed(0)
        whole = nn.Sequential(Partly(), nn.Linear(WIDTH, 9))
        model = copy.deepcopy(whole)
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        compressed = tern.torch.compress(model, recipe="int:bits=8", name="unused",
                                         replicas=replicas)
        for step in range(2):
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            averaged(whole, 4, step)
            # A row without one parameter is not cut: all of the block travels exactly.
            for name, parameter in model.named_parameters():
                if name != "0.down.weight":
                    close(parameter.grad.full_tensor(), dict(whole.named_parameters())[name].grad)
        assert compressed.stats() == {}
        said = ["the module 0 travel exactly in steps" in line for _, line in lines]
        assert said.count(True) == 1
        assert compressed.state_dict()["parts"] == {}

    run_ranks(two_nodes, 4, work)


def test_parameters_that_are_not_trained(two_nodes):
    """As of a model of which a part is tuned."""
    def work(rank):
        mesh, replicas = meshes()
        torch.manual_seed(0)
        whole = nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 9))
        for block in whole[:2]:
            block.norm.weight.requires_grad_(False)
            block.up.weight.requires_grad_(False)
        model = copy.deepcopy(whole)
        for block in model[:2]:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        compressed = tern.torch.compress(model, recipe="int:bits=8", replicas=replicas)
        found, wanted = backward(model, rank), averaged(whole, 4)
        for name in found:
            close(found[name], wanted[name], 50 if name in LOSSY else 1e5)
        assert compressed.stats().keys() == {"0.down.weight", "1.down.weight"}

    run_ranks(two_nodes, 4, work)


def test_parameters_that_are_frozen_later(two_nodes):
    def work(rank):
        mesh, replicas = meshes()
        model, _ = models(mesh)
        compressed = tern.torch.compress(model, recipe="int:bits=8", replicas=replicas)
        backward(model, rank)
        assert set(compressed.stats()) == LOSSY
        dict(model.named_parameters())["0.down.weight"].requires_grad_(False)
        model.zero_grad()
        backward(model, rank)
        left = LOSSY - {"0.down.weight"}
        assert set(compressed.stats()) == left
        assert set(compressed.state_dict()["parts"]) == left
        assert compressed.ratio() > 1

    run_ranks(two_nodes, 4, work)


def test_programs_that_divide_gradients_have_sums(two_nodes):
    """As they have of PyTorch."""
    def work(rank):
        mesh = DeviceMesh("cpu", NODES, mesh_dim_names=("replicas", "shards"))

        def gradients_of(model):
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.set_gradient_divide_factor(4.0)
            return backward(model, rank)

        model, _ = models(mesh["shards"])
        tern.torch.compress(model, "raw", replicas=mesh["replicas"].get_group())
        found, wanted = gradients_of(model), gradients_of(models(mesh)[0])
        for name in wanted:
            close(found[name], wanted[name])

    run_ranks(two_nodes, 4, work)


def test_accumulated_gradients_are_averaged_once(two_nodes):
    def work(rank):
        mesh, replicas = meshes()
        model, whole = models(mesh)
        compressed = tern.torch.compress(model, recipe="int:bits=8", replicas=replicas)
        found = accumulate(model, compressed, rank)
        assert set(compressed.stats()) == LOSSY
        for step in range(3):
            for other in range(4):
                (whole(batch(other, step)).square().sum() / 4).backward()
        for name, parameter in whole.named_parameters():
            close(found[name], parameter.grad, 50 if name in LOSSY else 1e5)

    run_ranks(two_nodes, 4, work)


def test_a_training_goes_on_from_a_checkpoint_bit_for_bit(two_nodes):
    def work(rank):
        mesh, replicas = meshes()
        options = {"recipe": "3lc:s=1", "replicas": replicas}
        model, _ = models(mesh)
        tern.torch.compress(model, name="uninterrupted", **options)
        wanted = train(model, rank, 6)
        model, _ = models(mesh)
        compressed = tern.torch.compress(model, name="first", **options)
        with pytest.raises(RuntimeError, match="before the first step"):
            compressed.state_dict()
        train(model, rank, 3)
        shards, owed = copy.deepcopy(model.state_dict()), compressed.state_dict()
        assert owed["parts"].keys() == LOSSY
        with pytest.raises(RuntimeError, match="before the first step"):
            compressed.load_state_dict(owed)
        for name in ("second", "forgetful"):
            model, _ = models(mesh)
            model.load_state_dict(shards)
            compressed = tern.torch.compress(model, name=name, **options)
            with pytest.raises(ValueError, match="other parameters.*0.norm.weight"):
                compressed.load_state_dict(owed | {"parts": {"0.norm.weight": b""}})
            if name == "second":
                compressed.load_state_dict(owed)
            assert same(train(model, rank, 3, begin=3), wanted) == (name == "second"), name

    run_ranks(two_nodes, 4, work)


@pytest.mark.parametrize("loads", [True, False])
def test_more_replicas_deliver_what_fewer_owed(two_nodes, loads):
    """Four whose own gradients are zero, after one step of two."""
    name = "0.up.weight"

    def owes(rank):
        mesh, replicas = meshes([[0], [1]])
        model, whole = models(mesh)
        compressed = tern.torch.compress(model, "3lc:s=1", replicas=replicas)
        owed = averaged(whole, 2)[name] - backward(model, rank)[name]
        return owed, compressed.state_dict()

    (owed, first), (_, second) = run_ranks(two_nodes, 2, owes)

    def pays(rank):
        mesh, replicas = meshes([[0], [1], [2], [3]])
        model, _ = models(mesh)
        compressed = tern.torch.compress(model, "3lc:s=1", replicas=replicas)
        if loads:
            compressed.load_state_dict(first, second)
        delivered = torch.zeros_like(owed)
        for _ in range(8):
            model.zero_grad()
            (model(batch(rank)).square().sum() * 0).backward()
            delivered += gradients(model)[name]
        # An average over twice as many ranks.
        error = ((2 * delivered - owed).norm() / owed.norm()).item()
        assert error < 0.2 if loads else not delivered.any(), error

    run_ranks(two_nodes, 4, pays)


def test_what_is_owed_follows_the_loss_scale(two_nodes):
    """Scales are powers of two, so that the weights have the same bits as without a scale."""
    def work(rank):
        mesh, replicas = meshes()
        model, _ = models(mesh)
        tern.torch.compress(model, "3lc:s=1", name="unscaled", replicas=replicas)
        wanted = train(model, rank, 6)
        for name in ("followed", "forgotten"):
            scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
            model, _ = models(mesh)
            tern.torch.compress(model, "3lc:s=1", name=name, replicas=replicas,
                                scaler=scaler if name == "followed" else None)
            assert same(train(model, rank, 6, scaler), wanted) == (name == "followed"), name

    run_ranks(two_nodes, 4, work)


def test_one_replica_averages_nothing(two_nodes):
    def work(rank):
        lines = lines_of_the_log()
        mesh, replicas = meshes([[0, 1]])
        model, whole = models(mesh)
        compressed = tern.torch.compress(model, recipe="3lc:s=1", replicas=replicas)
        assert "there is one replica" in lines[-1][1]
        found, wanted = backward(model, rank), averaged(whole, 2)
        for name in wanted:
            close(found[name], wanted[name])
        assert compressed.stats() == compressed.state_dict()["parts"] == {}
        assert compressed.ratio() == 1.0

    run_ranks(two_nodes, 2, work)


def test_a_line_of_the_log_says_what_is_done(two_nodes):
    def work(rank):
        lines = lines_of_the_log()
        mesh, replicas = meshes()
        model, _ = models(mesh)
        tern.torch.compress(model, recipe="int:bits=8", replicas=replicas)
        (level, line), = lines
        assert level == "INFO"
        assert "of 4 of 14 sharded parameters travel by int:bits=8 between 2 replicas on 2 nodes" \
            in line

    run_ranks(two_nodes, 4, work)


def test_a_model_that_replicates_itself_is_warned_of(two_nodes):
    def work(rank):
        lines = lines_of_the_log()
        mesh = DeviceMesh("cpu", NODES, mesh_dim_names=("replicas", "shards"))
        model, whole = models(mesh)
        tern.torch.compress(model, recipe="int:bits=8")
        (level, line), _ = lines
        assert level == "WARNING" and "give compress() the others' as replicas=" in line
        found, wanted = backward(model, rank), averaged(whole, 4)
        for name in wanted:
            close(found[name], wanted[name], 50 if name in LOSSY else 1e5)

    run_ranks(two_nodes, 4, work)


def test_a_model_of_tensor_parallelism_is_not_taken_for_one(two_nodes):
    def work(rank):
        lines = lines_of_the_log()
        mesh = DeviceMesh("cpu", NODES, mesh_dim_names=("shards", "tensors"))
        model, _ = models(mesh["shards"], before=lambda block: parallelize_module(
            block, mesh["tensors"], {"norm": SequenceParallel(), "up": ColwiseParallel(),
                                     "down": RowwiseParallel(output_layouts=Shard(0))}))
        tern.torch.compress(model, recipe="int:bits=8")
        assert [level for level, _ in lines] == ["INFO"]

    run_ranks(two_nodes, 4, work)


def test_groups_that_are_no_replicas_are_refused_on_all_ranks(two_nodes):
    def work(rank):
        mesh, replicas = meshes()
        model, _ = models(mesh)
        with pytest.raises(ValueError, match="ranks that share the model with each other"):
            tern.torch.compress(model, replicas=dist.group.WORLD)
        crossed, _ = dist.new_subgroups_by_enumeration([[0, 3], [2, 1]])
        with pytest.raises(ValueError, match=r"different shards.*\[0\] of \[2\].*\[1\] of \[2\]"):
            tern.torch.compress(model, replicas=crossed)
        with pytest.raises(ValueError, match="leave out gather_recipe="):
            tern.torch.compress(model, replicas=replicas, gather_recipe="none(bf16)")
        model = nn.Linear(WIDTH, WIDTH)
        fully_shard(model, mesh=DeviceMesh("cpu", NODES, mesh_dim_names=("between", "inside")))
        with pytest.raises(ValueError, match="itself averages the module itself between replicas"):
            tern.torch.compress(model, replicas=replicas)
        model = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
        with pytest.raises(ValueError, match="leave out replicas="):
            tern.torch.compress(model, replicas=replicas)

    run_ranks(two_nodes, 4, work)


def test_modules_with_meshes_of_their_own_are_compared_each(two_nodes):
    def work(rank):
        one = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("replicas", "shards"))
        other = DeviceMesh("cpu", [[0, 3], [1, 2]], mesh_dim_names=("replicas", "shards"))
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
        fully_shard(model[0], mesh=one["shards"])
        fully_shard(model[1], mesh=other["shards"])
        fully_shard(model, mesh=one["shards"])
        with pytest.raises(ValueError, match="different shards"):
            tern.torch.compress(model, replicas=one["replicas"].get_group())

    run_ranks(two_nodes, 4, work)


def test_what_is_wrong_is_said_before_the_first_step(two_nodes):
    def work(rank):
        mesh, replicas = meshes([[0], [1]])
        model, _ = models(mesh)
        with pytest.raises(ValueError, match="has a name of more than 127 bytes"):
            tern.torch.compress(model, name=120 * "n", replicas=replicas)
        other = dist.new_group([0])
        if rank == 1:
            with pytest.raises(ValueError, match="this rank is not in"):
                tern.torch.compress(model, replicas=other)
        model[0].set_all_reduce_hook(lambda row: None)
        with pytest.raises(ValueError, match="module 0 has an all-reduce hook already"):
            tern.torch.compress(model, replicas=replicas)

    run_ranks(two_nodes, 2, work)


def test_a_state_of_another_shard_is_refused(two_nodes):
    def work(rank):
        mesh, replicas = meshes()
        model, _ = models(mesh)
        compressed = tern.torch.compress(model, "3lc:s=1", name="first", replicas=replicas)
        train(model, rank, 1)
        states = [None, None]
        dist.all_gather_object(states, compressed.state_dict(), group=mesh.get_group())
        own = mesh.get_local_rank()
        model, _ = models(mesh)
        compressed = tern.torch.compress(model, "3lc:s=1", name="second", replicas=replicas)
        with pytest.raises(ValueError, match=r"is of shard \[1\]|is of shard \[0\]"):
            compressed.load_state_dict(states[1 - own])
        compressed.load_state_dict(states[own])

    run_ranks(two_nodes, 4, work)


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.all = Block(), Block(), True

    def forward(self, x):
        x = self.first(x)
        return self.second(x) if self.all else x


@pytest.mark.parametrize("between_replicas", [True, False])
def test_what_no_module_has_asked_for_is_saved_again(two_nodes, between_replicas):
    def work(rank):
        mesh, replicas = meshes([[0], [1]] if between_replicas else [[0, 1]])
        options = {"replicas": replicas} if between_replicas else {}

        def made(name):
            torch.manual_seed(0)
            model = Halves()
            for module in (model.first, model.second, model):
                fully_shard(module, mesh=mesh)
            return model, tern.torch.compress(model, "3lc:s=1", name=name, **options)

        model, compressed = made("one")
        backward(model, rank)
        state = compressed.state_dict()
        model, compressed = made("two")
        compressed.load_state_dict(state)
        model.all = False
        model(batch(rank)).square().sum().backward()
        again = compressed.state_dict()
        assert again["parts"].keys() == state["parts"].keys() == again["counts"].keys()
        waiting = [key for key in state["parts"] if "second" in key]
        assert waiting and all(again["parts"][key] == state["parts"][key] for key in waiting)

    run_ranks(two_nodes, 2, work)


def test_a_pytorch_that_takes_no_other_averages(two_nodes, monkeypatch):
    def work(rank):
        mesh, replicas = meshes()
        model, _ = models(mesh)
        monkeypatch.delattr(FSDPModule, "set_all_reduce_hook")
        with pytest.raises(tern.UnsupportedError, match="set_all_reduce_hook.*use 2.9 or"):
            tern.torch.compress(model, replicas=replicas)

    run_ranks(two_nodes, 4, work)


def test_all_replicas_hear_that_one_has_died(two_nodes):
    def work(rank):
        mesh, replicas = meshes([[0], [1]])
        model, _ = models(mesh)
        tern.torch.compress(model, recipe="int:bits=8", replicas=replicas)
        backward(model, rank)
        loss = model(batch(rank)).square().sum()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(tern.RankLostError, match="rank 1"):
            loss.backward()
        os._exit(RAISED)

    started = start_ranks(two_nodes, 2, work)
    for process, _ in started:
        process.join()
    assert [process.exitcode for process, _ in started] == [RAISED, -signal.SIGKILL]
