"""What compress() says of a link that is too fast to gain."""

import logging

import pytest
from test_compression import STEPS, model_of, train

import tern.torch
from ranks import run_ranks
from tern.errors import RankLostError
from tern.torch.gains import Gains, Traffic


class Link:
    """Bytes raw and sent of each step: in the first fifty, and from then on."""

    def __init__(self, first, later):
        self.steps, self.first, self.later = 0, first, later

    def traffic(self):
        early, late = min(self.steps, 50), max(self.steps - 50, 0)
        return Traffic(*(early * first + late * later
                         for first, later in zip(self.first, self.later)))

    def train(self, steps):
        gains = Gains(self.traffic)
        for _ in range(steps):
            self.steps += 1
            gains.count_step()


@pytest.mark.parametrize("sent, lines", [(1000, 1), (960, 1), (900, 0), (30, 0)])
def test_one_line_says_that_nothing_is_gained(caplog, sent, lines):
    caplog.set_level(logging.INFO, "tern")
    Link((30, 1000), (sent, 1000)).train(300)
    assert len(caplog.messages) == lines
    assert all("too fast to gain" in message for message in caplog.messages)


def test_nothing_is_said_where_nothing_travels_or_the_group_has_failed(caplog):
    caplog.set_level(logging.INFO, "tern")
    Link((0, 0), (0, 0)).train(300)

    def lost():
        raise RankLostError("rank 1 is gone")

    gains = Gains(lost)
    for _ in range(300):
        gains.count_step()
    assert not caplog.messages


def test_a_step_counts_once_however_many_buckets_it_has(two_nodes):
    def work(rank):
        for recipe in ("auto", "raw"):
            model = model_of(buckets_mb=0.01)
            compression = tern.torch.compress(model, recipe=recipe, name=recipe)
            train(model, rank)
            steps = compression._gains and compression._gains._steps
            assert steps == (STEPS if recipe == "auto" else None)

    run_ranks(two_nodes, 2, work)
