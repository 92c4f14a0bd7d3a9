"""Ranks whose models or recipes differ: an error on every rank, and none waits for another."""

import re

import pytest
import torch
from test_compression import WIDTH, Layers, model_of, train
from test_sharded import backward, models
from torch.nn.parallel import DistributedDataParallel

import tern.torch
from ranks import RankFailed, answer_of, start_ranks


def failures(nodes, work):
    """The text of each rank's failure. Every rank has one."""
    found = []
    for started in start_ranks(nodes, 2, work):
        with pytest.raises(RankFailed) as raised:
            answer_of(*started)
        found.append(str(raised.value))
    return found


def other_count(rank):
    DistributedDataParallel(Layers(2 + rank))


def other_shape(rank):
    DistributedDataParallel(Layers(2, WIDTH + 8 * rank))


def other_type(rank):
    DistributedDataParallel(Layers(2).to((torch.float32, torch.bfloat16)[rank]))


def other_recipe(rank):
    model = model_of()
    tern.torch.compress(model, recipe=("bf16", "3lc:s=1")[rank])
    train(model, rank, 1)


def other_exemptions(rank):
    model = model_of()
    tern.torch.compress(model, recipe="bf16", exempt=(None, ["layers.0.*"])[rank])
    train(model, rank, 1)


def compressed_on_one(rank):
    model = model_of()
    if rank == 1:
        tern.torch.compress(model, recipe="bf16")
    train(model, rank, 1)


def other_shards(rank):
    model, _ = models(2)
    tern.torch.compress(model, recipe="bf16", exempt=(None, ["0.*"])[rank])
    backward(model, rank)


DISAGREE = "MismatchError: ranks disagree.*rank [01] says .*rank [01] says "


# DDP itself compares shapes with those of rank 0, which hears of it when the other ends.
@pytest.mark.parametrize("work, reason", [
    (other_count, "DDP expects same model across all ranks"),
    (other_shape, r"params\[0\] in this process .*appears not to match"),
    (other_type, DISAGREE), (other_recipe, DISAGREE), (other_exemptions, DISAGREE),
    (compressed_on_one, DISAGREE), (other_shards, DISAGREE)], ids=lambda each: getattr(
        each, "__name__", ""))
def test_all_ranks_hear_of_it(two_nodes, work, reason):
    """The first to hear ends, and so the other may hear of that."""
    found = failures(two_nodes, work)
    told = [bool(re.search(reason, text, re.DOTALL)) for text in found]
    assert any(told), found
    for text, has_reason in zip(found, told):
        assert has_reason or "RankLostError: " in text, text
