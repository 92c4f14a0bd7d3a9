"""A parameter server on the ranks of two nodes."""

import numpy as np
import pytest

import tern
from cluster import run_ranks
from tern.push_pull import cut

SIZE = 3  # two ranks on one node, one on the other
COUNT = 20_011


def test_shards_differ_by_an_element_or_are_all_of_one_rank():
    assert cut(11, 3, None) == [4, 4, 3]
    assert cut(2, 3, None) == [1, 1, 0]
    assert cut(11, 3, 2) == [0, 0, 11]
    with pytest.raises(ValueError, match="server=3"):
        cut(11, 3, 3)


def gradients(rank, step):
    """On a grid of 2^-10, so that nothing rounds."""
    draw = np.random.default_rng([rank, step])
    return draw.integers(-1024, 1024, COUNT).astype(np.float32) / 1024


def train(group, recipe, server, steps):
    model = group.push_pull("model", COUNT, server=server, reduction="sum", push_recipe=recipe,
                            pull_recipe=recipe)
    copy = np.zeros(COUNT, np.float32)
    kept = np.zeros(COUNT, np.float32)[model.shard]
    for step in range(steps):
        pushed = model.push(gradients(group.rank, step)).wait()
        assert pushed.shape == kept.shape
        before = kept.copy()
        kept -= pushed / 8
        copy += model.pull(kept - before).wait()
    stats = model.pull_tensor.stats()
    model.release()
    return copy, kept, model.shard, stats


@pytest.mark.parametrize("server", [None, 1])
def test_raw_copies_are_the_owners_model(two_nodes, server):
    results = run_ranks(two_nodes, SIZE, lambda group: train(group, "raw", server, 3))
    wanted = -sum(gradients(rank, step) for rank in range(SIZE) for step in range(3)) / 8
    for copy, kept, shard, _ in results:
        np.testing.assert_array_equal(copy, wanted)
        np.testing.assert_array_equal(kept, wanted[shard])


@pytest.mark.parametrize("server", [None, 1])
def test_lossy_copies_are_alike_and_behind_by_a_residual(two_nodes, server):
    results = run_ranks(two_nodes, SIZE, lambda group: train(group, "3lc:s=1", server, 10))
    behind = 0
    for copy, kept, shard, stats in results:
        np.testing.assert_array_equal(copy, results[0][0])
        behind = max([behind, *np.abs(kept - copy[shard])])
        assert stats.bytes_sent == 0 or stats.ratio > 10
    assert 0 < behind < 2


def test_a_server_that_was_refused_may_be_declared_again(two_nodes):
    """While its failure is still looked at."""
    def work(group):
        try:
            group.push_pull("model", 8, pull_recipe="3lc:s=9")
        except tern.BadRecipeError:
            model = group.push_pull("model", 8)
        return len(model.push(np.ones(8, np.float32)).wait()) == model.counts[group.rank]

    assert all(run_ranks(two_nodes, SIZE, work))


def test_what_makes_no_sense_is_refused(two_nodes):
    def work(group):
        with pytest.raises(ValueError, match="server=5"):
            group.push_pull("model", 8, server=5)
        with pytest.raises(ValueError, match="neither average nor sum"):
            group.push_pull("model", 8, reduction="max")
        with pytest.raises(tern.BadRecipeError):
            group.push_pull("model", 8, pull_recipe="3lc:s=9")
        model = group.push_pull("model", 8)
        with pytest.raises(ValueError, match="counts give rank"):
            model.push(np.zeros(7, np.float32))
        group.barrier().wait()  # a rank that is done first gives the name back
        return True

    assert all(run_ranks(two_nodes, SIZE, work))
