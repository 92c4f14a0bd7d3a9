"""tern.torch.ParameterServer: the optimizer runs where a part of the model is kept."""

import copy

import pytest
import torch
from torch import nn

import tern
import tern.torch
from ranks import run_ranks

WIDTH = 60


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 90), nn.Tanh(), nn.LayerNorm(90), nn.Linear(90, 7))


def sgd(parts):
    return torch.optim.SGD(parts, lr=0.05, momentum=0.9)


def adam(parts):
    return torch.optim.Adam(parts, lr=0.01)


def loss(model, rank, step):
    draw = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(8, WIDTH, generator=draw)
    return (model(x) - x[:, :7]).square().mean()


def train(server, model, rank, steps):
    for step in steps:
        server.zero_grad()
        loss(model, rank, step).backward()
        server.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def reference(optimizer, size, steps):
    """One process with the data of all ranks."""
    model = network()
    inner = optimizer(list(model.parameters()))
    for step in range(steps):
        inner.zero_grad()
        for rank in range(size):
            (loss(model, rank, step) / size).backward()
        inner.step()
    return [parameter.detach() for parameter in model.parameters()]


def same(found, wanted):
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("optimizer", [sgd, adam])
@pytest.mark.parametrize("server", [None, 1])
def test_it_trains_as_one_process_does(two_nodes, optimizer, server):
    """Without a recipe; with parts of different sizes, and with one owner of all."""
    def work(rank):
        model = network()
        if rank != 0:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(rank)  # rank 0's count
        return train(tern.torch.ParameterServer(model, optimizer, server=server), model, rank,
                     range(6))

    first, *others = run_ranks(two_nodes, 3, work)
    for one, wanted in zip(first, reference(optimizer, 3, 6), strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-5)
    for other in others:
        same(first, other)


@pytest.mark.parametrize("server", [None, 0])
def test_compressed_it_learns_and_all_ranks_have_the_same_bits(two_nodes, server):
    def work(rank):
        model = network()
        before = loss(model, 0, 1000).item()
        served = tern.torch.ParameterServer(model, sgd, server=server, push_recipe="3lc:s=1",
                                            pull_recipe="3lc:s=1.5")
        found = train(served, model, rank, range(60))
        assert served.ratio() > 5
        assert loss(model, 0, 1000).item() < before / 2
        return found

    first, *others = run_ranks(two_nodes, 3, work)
    for other in others:
        same(first, other)


def test_parameters_without_a_gradient_and_schedules(two_nodes):
    def work(rank):
        model = network()
        kept = copy.deepcopy(model[3])
        model[3].requires_grad_(False)
        server = tern.torch.ParameterServer(model, sgd, server=0)
        schedule = torch.optim.lr_scheduler.StepLR(server.optimizer, 1, gamma=0.0)
        model[0](torch.ones(2, WIDTH)).sum().backward()  # the norm has no gradient
        server.step()
        schedule.step()
        after = [parameter.detach().clone() for parameter in model.parameters()]
        train(server, model, rank, range(2))  # at a rate of 0
        same(list(model.parameters()), after)
        same(list(model[3].parameters()), list(kept.parameters()))

    run_ranks(two_nodes, 2, work)


def test_a_checkpoint_goes_on(two_nodes, tmp_path):
    def work(rank):
        model = network()
        server = tern.torch.ParameterServer(model, adam, name="first")
        train(server, model, rank, range(3))
        torch.save(server.state_dict(), tmp_path / f"{rank}.pt")
        wanted = train(server, model, rank, range(3, 6))
        model = network()
        server = tern.torch.ParameterServer(model, adam, name="second")
        state = torch.load(tmp_path / f"{rank}.pt")
        with pytest.raises(ValueError, match="load each rank's own"):
            server.load_state_dict(state | {"kept": [torch.ones(3)]})
        server.load_state_dict(state)
        same(train(server, model, rank, range(3, 6)), wanted)

    run_ranks(two_nodes, 2, work)


def test_no_state_is_loaded_where_a_recipe_owes_for_another_model(two_nodes):
    def work(rank):
        model = network()
        server = tern.torch.ParameterServer(model, sgd, pull_recipe="int:bits=4")
        state = server.state_dict()
        train(server, model, rank, range(2))
        with pytest.raises(RuntimeError, match="before the first step"):
            server.load_state_dict(state)

    run_ranks(two_nodes, 2, work)


def test_the_optimizer_may_forget_its_gradients(two_nodes):
    def work(forgets):
        def on(rank):
            model = network()
            server = tern.torch.ParameterServer(model, sgd)
            found = []
            for step in range(3):
                if forgets:
                    server.optimizer.zero_grad()
                found = train(server, model, rank, range(step, step + 1))
            return found
        return on

    same(run_ranks(two_nodes, 2, work(True))[0], run_ranks(two_nodes, 2, work(False))[0])


def test_what_is_refused_by_name(two_nodes):
    def work(rank):
        with pytest.raises(TypeError, match="0.weight is of torch.float64"):
            tern.torch.ParameterServer(network().double(), sgd)
        with pytest.raises(ValueError, match="server=5 is no rank"):
            tern.torch.ParameterServer(network(), sgd, server=5)
        with pytest.raises(tern.BadRecipeError, match="nosuch"):
            tern.torch.ParameterServer(network(), sgd, push_recipe="nosuch", name="bad")

    run_ranks(two_nodes, 2, work)
