"""tern.torch.compress() of a model that fully_shard() shards."""

import copy
import logging
import os
import signal
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

import tern
import tern.torch
from ranks import run_ranks, start_ranks
from tern.torch.columns import ColumnsOf

WIDTH = 64
RAISED = 7


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Partly(Block):
    """Of which one weight has no gradient, though it is trained."""

    def forward(self, x):
        up = torch.relu(self.up(self.norm(x)))
        return x + nn.functional.linear(up, self.down.weight.detach(), self.down.bias)


LOSSY = {f"{block}.{layer}.weight" for block in (0, 1) for layer in ("up", "down")}


def models(size, **more):
    """A model that is sharded over all ranks, and the same in one piece."""
    return models_on(init_device_mesh("cpu", (size,)), **more)


def models_on(mesh, before=lambda block: block, **more):
    """The same of another mesh. `before`: done with each block, before it is sharded."""
    torch.manual_seed(0)
    whole = nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 9))
    model = copy.deepcopy(whole)
    for block in model[:2]:
        before(block)
        fully_shard(block, mesh=mesh, **more)
    fully_shard(model, mesh=mesh, **more)
    return model, whole


def batch(rank, step=0):
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))


def gradients(model):
    return {name: parameter.grad.full_tensor() for name, parameter in model.named_parameters()
            if parameter.requires_grad}


def backward(model, rank, step=0):
    model.zero_grad()
    model(batch(rank, step)).square().sum().backward()
    return gradients(model)


def averaged(whole, size, step=0):
    whole.zero_grad()
    for rank in range(size):
        (whole(batch(rank, step)).square().sum() / size).backward()
    return {name: parameter.grad for name, parameter in whole.named_parameters()}


@pytest.mark.parametrize("size", [2, 3])
def test_large_gradients_lose_and_all_else_is_exact(two_nodes, size):
    def work(rank):
        model, _ = models(size)
        exact = backward(model, rank)
        model, _ = models(size)
        compressed = tern.torch.compress(model, recipe="int:bits=8")
        found = backward(model, rank)
        differing = {name for name in exact if not torch.equal(exact[name], found[name])}
        assert differing == LOSSY
        for name in LOSSY:
            torch.testing.assert_close(found[name], exact[name], rtol=0,
                                       atol=exact[name].abs().max().item() / 50)
        assert set(compressed.stats()) == {f"gradient/{name}" for name in LOSSY}
        assert compressed.ratio() > 3
        return found

    first, *others = run_ranks(two_nodes, size, work)
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in first)


def test_auto_loses_nothing_at_a_level_without_loss(two_nodes):
    def work(rank):
        model, whole = models(2)
        tern.torch.compress(model, level="lossless")
        found, wanted = backward(model, rank), averaged(whole, 2)
        for name in wanted:
            torch.testing.assert_close(found[name], wanted[name])

    run_ranks(two_nodes, 2, work)


def test_what_is_owed_arrives_later(two_nodes):
    """The sum of what has been delivered nears that of the true averages."""
    def work(rank):
        model, whole = models(2)
        tern.torch.compress(model, recipe="3lc:s=1")
        wanted = averaged(whole, 2)
        total = {name: torch.zeros_like(each) for name, each in wanted.items()}
        worst = []
        for step in range(1, 9):
            for name, gradient in backward(model, rank).items():
                total[name] += gradient
            name = "0.up.weight"
            worst.append(((total[name] / step - wanted[name]).norm() / wanted[name].norm()).item())
        assert worst[-1] < worst[0] / 2, worst

    run_ranks(two_nodes, 2, work)


def test_weights_are_gathered_by_a_recipe_where_one_is_named(two_nodes):
    def work(rank):
        model, whole = models(2)
        compressed = tern.torch.compress(model, recipe="raw", gather_recipe="none(bf16)")
        rounded = copy.deepcopy(whole)
        with torch.no_grad():
            for name, parameter in rounded.named_parameters():
                if name in LOSSY:
                    parameter.copy_(parameter.bfloat16())
        x = batch(0)
        assert torch.equal(model(x), rounded(x))
        assert {f"weights/{name}" for name in LOSSY} <= set(compressed.stats())
        assert not torch.equal(rounded(x), whole(x))

    run_ranks(two_nodes, 2, work)


def test_mixed_types_frozen_parameters_and_another_backend(two_nodes):
    def work(rank):
        model, _ = models(2, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        tern.torch.compress(model, recipe="int:bits=8", name="mixed")
        backward(model, rank)
        model, whole = models(2)
        tern.torch.compress(model, recipe="int:bits=8", name="frozen")
        for each in (model, whole):
            each[0].down.weight.requires_grad_(False)
        found, wanted = backward(model, rank), averaged(whole, 2)
        for name in found:
            torch.testing.assert_close(found[name], wanted[name], rtol=1e-5, atol=wanted[
                name].abs().max().item() / (50 if name in LOSSY else 1e5))
        assert not torch.allclose(found["0.up.weight"], wanted["0.up.weight"], rtol=1e-4)

    run_ranks(two_nodes, 2, work)
    run_ranks(two_nodes, 2, work, backend="gloo")


def test_a_row_without_all_gradients_travels_exactly(two_nodes):
    def work(rank):
        torch.manual_seed(0)
        whole = nn.Sequential(Partly(), nn.Linear(WIDTH, 9))
        model = copy.deepcopy(whole)
        mesh = init_device_mesh("cpu", (2,))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        compressed = tern.torch.compress(model, recipe="int:bits=8")
        model(batch(rank)).square().sum().backward()
        averaged(whole, 2)
        for name, parameter in model.named_parameters():
            if name != "0.down.weight":
                torch.testing.assert_close(parameter.grad.full_tensor(),
                                           dict(whole.named_parameters())[name].grad)
        assert compressed.stats() == {}

    run_ranks(two_nodes, 2, work)


def test_the_memory_of_gathers_and_scatters_is_in_the_arena(two_nodes):
    def work(rank):
        model, _ = models(2)
        tern.torch.compress(model, recipe="int:bits=8")
        backward(model, rank)
        sizes = []
        submissions = dist.group.WORLD._submissions
        real = submissions.buffer
        submissions.buffer = lambda count, dtype: sizes.append(count) or real(count, dtype)
        backward(model, rank, 1)
        block = sum(parameter.numel() for parameter in Block().parameters())
        assert sizes.count(block) >= 2  # a gather's output and a scatter's input

    run_ranks(two_nodes, 2, work)


def test_what_is_refused_by_name(two_nodes):
    def work(rank):
        model, _ = models(2)
        tern.torch.compress(model, recipe="nosuch")
        with pytest.raises(tern.BadRecipeError, match="nosuch"):
            backward(model, rank)

    run_ranks(two_nodes, 2, work)


def lines_of_the_log():
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
    logging.getLogger("tern").addHandler(handler)
    logging.getLogger("tern").setLevel(logging.INFO)
    return lines


def test_a_pytorch_that_keeps_parameters_in_another_way(two_nodes, monkeypatch):
    """The module that travels exactly for it is named, and not counted as compressed."""
    def work(rank):
        lines = lines_of_the_log()
        model, _ = models(2)
        exact = backward(model, rank)
        with monkeypatch.context() as patch:
            for parameter in model[0]._get_fsdp_state()._fsdp_param_group.fsdp_params:
                patch.delattr(parameter, "padded_sharded_param_size")
            tern.torch.compress(model, recipe="int:bits=8")
        (level, warning), (_, described) = lines
        assert level == "WARNING" and "the module 0 (FSDPBlock) travels exactly" in warning
        assert torch.__version__ in warning and "padded_sharded_param_size" in warning
        assert "gradients of 2 of 14 sharded parameters" in described
        found = backward(model, rank)
        assert {name for name in exact if not torch.equal(exact[name], found[name])} == {
            name for name in LOSSY if name.startswith("1.")}

    run_ranks(two_nodes, 2, work)


@pytest.mark.parametrize("state, warns", [
    (None, True), (SimpleNamespace(), True),
    (SimpleNamespace(_fsdp_param_group=SimpleNamespace()), True),
    (SimpleNamespace(_fsdp_param_group=SimpleNamespace(fsdp_params=[object()])), True),
    # All its parameters are of modules within.
    (SimpleNamespace(_fsdp_param_group=None), False),
    (SimpleNamespace(_fsdp_param_groups=[], _fsdp_param_group=None), False),
])
def test_no_name_of_pytorchs_own_is_missed_silently(caplog, state, warns):
    module = SimpleNamespace() if state is None else SimpleNamespace(_get_fsdp_state=lambda: state)
    assert ColumnsOf(module, "layer", {}).names == []
    assert ["the module layer" in message for message in caplog.messages] == [True] * warns


def test_a_pytorch_that_takes_no_other_gathers(two_nodes, monkeypatch):
    def work(rank):
        model, _ = models(2)
        monkeypatch.delattr(FSDPModule, "set_custom_all_gather")
        with pytest.raises(tern.UnsupportedError, match="set_custom_all_gather.*use 2.9 or"):
            tern.torch.compress(model)

    run_ranks(two_nodes, 2, work)


def accumulate(model, compressed, rank):
    """The gradients of three batches, which travel with the last."""
    model.set_requires_gradient_sync(False)
    for step in (0, 1):
        model(batch(rank, step)).square().sum().backward()
    assert compressed.stats() == {}
    model.set_requires_gradient_sync(True)
    model(batch(rank, 2)).square().sum().backward()
    assert all(stats.ops == 1 for stats in compressed.stats().values())
    return gradients(model)


def test_accumulated_gradients_are_scattered_once(two_nodes):
    def work(rank):
        model, whole = models(2)
        compressed = tern.torch.compress(model, recipe="int:bits=8")
        found = accumulate(model, compressed, rank)
        assert set(compressed.stats()) == {f"gradient/{name}" for name in LOSSY}
        for step in range(3):
            for other in range(2):
                (whole(batch(other, step)).square().sum() / 2).backward()
        for name, parameter in whole.named_parameters():
            largest = parameter.grad.abs().max().item()
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-5,
                                       atol=largest / (50 if name in LOSSY else 1e5))

    run_ranks(two_nodes, 2, work)


def train(model, rank, steps, scaler=None, begin=0):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(begin, begin + steps):
        loss = model(batch(rank, step)).square().sum()
        (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
    return weights(model)


def weights(model):
    return {name: parameter.detach().full_tensor().clone()
            for name, parameter in model.named_parameters()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


RECIPES = {"recipe": "3lc:s=1", "gather_recipe": "none(bf16)"}


def test_a_training_goes_on_from_a_checkpoint_bit_for_bit(two_nodes):
    def work(rank):
        model, _ = models(2)
        tern.torch.compress(model, name="uninterrupted", **RECIPES)
        wanted = train(model, rank, 6)
        model, _ = models(2)
        compressed = tern.torch.compress(model, name="first", **RECIPES)
        with pytest.raises(RuntimeError, match="before the first step"):
            compressed.state_dict()
        train(model, rank, 3)
        shards, owed = copy.deepcopy(model.state_dict()), compressed.state_dict()
        assert owed["parts"].keys() >= {f"gradient/{name}" for name in LOSSY}
        with pytest.raises(RuntimeError, match="before the first step"):
            compressed.load_state_dict(owed)
        for name in ("second", "forgetful"):
            model, _ = models(2)
            model.load_state_dict(shards)
            compressed = tern.torch.compress(model, name=name, **RECIPES)
            if name == "second":
                compressed.load_state_dict(owed)
            assert same(train(model, rank, 3, begin=3), wanted) == (name == "second"), name

    run_ranks(two_nodes, 2, work)


@pytest.mark.parametrize("loads", [True, False])
def test_more_ranks_deliver_what_fewer_owed(two_nodes, loads):
    """Four ranks whose own gradients are zero, after one step of two ranks."""
    name = "0.up.weight"

    def owes(rank):
        model, whole = models(2)
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
        owed = averaged(whole, 2)[name] - backward(model, rank)[name]
        return owed, compressed.state_dict()

    (owed, first), (_, second) = run_ranks(two_nodes, 2, owes)

    def pays(rank):
        model, _ = models(4)
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
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


def test_a_checkpoint_of_other_shards_owes_nothing_and_says_so(two_nodes):
    def work(rank):
        lines = lines_of_the_log()
        model, _ = models(2)
        compressed = tern.torch.compress(model, name="first", **RECIPES)
        train(model, rank, 1)
        owed = compressed.state_dict()
        owed["counts"]["gradient/0.up.weight"] += 1
        model, _ = models(2)
        compressed = tern.torch.compress(model, name="second", **RECIPES)
        with pytest.raises(ValueError, match="the state has version 7"):
            compressed.load_state_dict(owed | {"version": 7})
        with pytest.raises(ValueError, match="other parameters.*gradient/0.norm.weight"):
            compressed.load_state_dict(owed | {"parts": {"gradient/0.norm.weight": b""}})
        compressed.load_state_dict(owed)
        train(model, rank, 1)
        warnings = [line for level, line in lines if level == "WARNING"]
        assert len(warnings) == 1 and "gradient/0.up.weight is sharded as" in warnings[0]
        model, _ = models(2)
        compressed = tern.torch.compress(model, name="third", **RECIPES)
        compressed.load_state_dict(owed | {"nodes": 1})
        train(model, rank, 1)
        assert "the state is of 1 nodes, and here is a group of 2" in lines[-1][1]

    run_ranks(two_nodes, 2, work)


def test_what_is_owed_follows_the_loss_scale(two_nodes):
    """Scales are powers of two, so that the weights have the same bits as without a scale."""
    def work(rank):
        model, _ = models(2)
        tern.torch.compress(model, name="unscaled", **RECIPES)
        wanted = train(model, rank, 6)
        for name in ("followed", "forgotten"):
            scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
            model, _ = models(2)
            tern.torch.compress(model, name=name, scaler=scaler if name == "followed" else None,
                                **RECIPES)
            assert same(train(model, rank, 6, scaler), wanted) == (name == "followed"), name
            assert scaler.get_scale() == 128.0

    run_ranks(two_nodes, 2, work)


def test_a_step_that_overflows_on_one_rank_is_left_out_on_all(two_nodes):
    def work(rank):
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=100)
        model, _ = models(2)
        tern.torch.compress(model, scaler=scaler, **RECIPES)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        seen = []
        for step in range(4):
            loss = model(batch(rank, step)).square().sum()
            scaler.scale(loss * (float("inf") if step == 1 and rank == 1 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            seen.append(weights(model))
        assert scaler.get_scale() == 8.0
        assert [same(*pair) for pair in zip(seen, seen[1:])] == [True, False, False]
        assert all(each.isfinite().all() for each in seen[-1].values())

    run_ranks(two_nodes, 2, work)


@pytest.mark.parametrize("recipe", ["auto", "raw"])
def test_a_step_counts_once_however_many_modules_scatter(two_nodes, recipe):
    def work(rank):
        model, _ = models(2)
        compressed = tern.torch.compress(model, recipe=recipe)
        for step in range(3):
            backward(model, rank, step)
        assert (compressed._gains and compressed._gains._steps) == (3 if recipe == "auto" else None)
        assert compressed._traffic().raw > 0

    run_ranks(two_nodes, 2, work)


@pytest.mark.parametrize("dies", ["between steps", "in a step"])
def test_every_other_rank_hears_that_one_has_died(two_nodes, dies):
    def work(rank):
        model, _ = models(3)
        tern.torch.compress(model, recipe="int:bits=8", gather_recipe="none(bf16)")
        backward(model, rank)
        loss = model(batch(rank)).square().sum() if dies == "in a step" else None
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(tern.RankLostError, match="rank 1"):
            backward(model, rank) if loss is None else loss.backward()
        os._exit(RAISED)

    started = start_ranks(two_nodes, 3, work)
    for process, _ in started:
        process.join()
    assert [process.exitcode for process, _ in started] == [RAISED, -signal.SIGKILL, RAISED]
