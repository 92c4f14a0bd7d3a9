"""A training with a torch.amp.GradScaler whose gradients compress() averages."""

import types

import pytest
import torch
import torch.distributed as dist
from test_compression import WIDTH, model_of
from torch import nn

import tern.torch
from ranks import run_ranks
from tern.torch.loss_scales import LossScales

OVERFLOWS_AT = 3
# It doubles after two good steps, and halves after a bad one.
SCALES = [16.0, 32.0, 32.0, 16.0, 16.0, 32.0, 32.0, 64.0]


def weights(model):
    return [parameter.detach().clone() for parameter in model.parameters()]


def train(model, scaler, rank):
    """For each step: the loss, the weights after it, and the scale after it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    target = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(rank))
    found = []
    for step in range(len(SCALES)):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = (model(target) - target).square().mean()
        # More than 16 bits hold, on one rank alone.
        overflows = step == OVERFLOWS_AT and rank == 1
        scaler.scale(loss * (1e8 if overflows else 1.0)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        found.append((loss.item(), weights(model), scaler.get_scale()))
    return found


def test_a_training_goes_on_after_a_step_that_overflows(two_nodes):
    def work(rank):
        model = model_of()
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
        compressed = tern.torch.compress(model, recipe="3lc:s=1", scaler=scaler)
        found = train(model, scaler, rank)
        assert [scale for _, _, scale in found] == SCALES
        for _, after, _ in found:
            assert all(each.isfinite().all() for each in after)
        for step, (_, before, _), (_, after, _) in zip(range(1, len(SCALES)), found, found[1:]):
            skipped = all(map(torch.equal, before, after))
            assert skipped == (step == OVERFLOWS_AT), step
        assert found[-1][0] < found[OVERFLOWS_AT][0] < found[0][0]
        assert all(stats.ops == len(SCALES) for stats in compressed.stats().values())
        dist.barrier()
        return found[-1][1]

    first, second = run_ranks(two_nodes, 2, work)
    assert all(map(torch.equal, first, second))


def test_a_scale_of_0_is_said_at_once():
    """What is owed cannot follow it, nor a later one."""
    found = [16.0, 8.0, 0.0]
    scales = LossScales(types.SimpleNamespace(get_scale=lambda: found.pop(0)))
    assert [scales.growth("w"), scales.growth("w")] == [1.0, 0.5]
    with pytest.raises(ValueError, match="loss scale has fallen to 0"):
        scales.growth("w")
