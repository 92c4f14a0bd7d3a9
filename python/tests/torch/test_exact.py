"""What DDP averages exactly: bit for bit the sum in the order that docs/collectives.md promises."""

import copy

import pytest
import torch
from test_compression import WIDTH, Layers
from torch.nn.parallel import DistributedDataParallel

import tern.torch
from cluster import daemons
from ranks import run_ranks

STEPS = 3


def batch(rank, step):
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))


def steps(model, optimizer, average):
    """Trains by what `average` puts in the gradients of a step; the weights of each step."""
    found = []
    for step in range(STEPS):
        optimizer.zero_grad()
        average(step)
        optimizer.step()
        found.append([parameter.detach().clone() for parameter in model.parameters()])
    return found


def by_hand(model, order, first):
    """What one process does that has the batches of all ranks. `order`: the ranks of each node, in
    the order of adding. `first`: gradients are divided before they are added, as DDP does."""
    model = copy.deepcopy(model)
    size = sum(map(len, order))

    def gradient(rank, step):
        model.zero_grad()
        model(batch(rank, step)).square().sum().backward()
        factor = 1 / size if first else 1.0
        return [parameter.grad * factor for parameter in model.parameters()]

    def add(parts):
        total = list(parts[0])
        for part in parts[1:]:
            total = [one + other for one, other in zip(total, part)]
        return total

    def average(step):
        total = add([add([gradient(rank, step) for rank in ranks]) for ranks in order])
        for parameter, each in zip(model.parameters(), total):
            parameter.grad = each if first else each * (1 / size)

    return steps(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), average)


def equal(found, wanted):
    return all(torch.equal(one, other)
               for step in zip(found, wanted) for one, other in zip(*step))


def check(nodes, size, order, layers, compressed):
    def work(rank):
        torch.manual_seed(0)
        whole = Layers(layers)
        model = DistributedDataParallel(copy.deepcopy(whole))
        if compressed:
            tern.torch.compress(model, recipe="3lc:s=1", exempt=lambda name, parameter: True)
        found = steps(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
                      lambda step: model(batch(rank, step)).square().sum().backward())
        assert equal(found, by_hand(whole, order, first=not compressed))
        # In another order the sum has other bits: this test can fail.
        other = [ranks[::-1] for ranks in order[::-1]]
        other = [[rank] for ranks in other for rank in ranks]
        assert not equal(found, by_hand(whole, other, first=not compressed))

    run_ranks(nodes, size, work)


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "all exempt"])
@pytest.mark.parametrize("layers", [1, 6], ids=["one hop", "two legs"])
def test_the_ranks_of_a_node_are_added_first(two_nodes, layers, compressed):
    """Of two nodes the order of the nodes changes no bit."""
    check(two_nodes, 4, [[0, 2], [1, 3]], layers, compressed)


def test_nodes_are_added_from_the_first_on_in_one_hop():
    with daemons(3) as nodes:
        check(nodes, 3, [[0], [1], [2]], 1, compressed=False)
