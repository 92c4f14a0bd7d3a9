"""Every collective on two nodes against NumPy, and programs made of them by chance."""

import os
import random
import sys

import numpy as np
import pytest
from test_arrays import Bfloat16FromOutside

import tern
from cluster import run_ranks
from tern._library import library

SIZE = 3  # two ranks on one node, one on the other
COUNTS = [5, 0, 7]
REDUCTIONS = {"sum": np.add.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce,
              "product": np.multiply.reduce}
TYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
         "uint32", "uint64"]


def values(rank, count, dtype="float32", seed=0):
    """Small whole numbers, so that every order of addition gives the same."""
    draw = np.random.default_rng([seed, rank])
    return draw.integers(0, 4, count).astype(dtype)


def inputs(count, dtype="float32", seed=0):
    return [values(rank, count, dtype, seed) for rank in range(SIZE)]


def begin(rank):
    return sum(COUNTS[:rank])


def shares():
    return [values(rank, COUNTS[rank]) for rank in range(SIZE)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_all_reduce_gives_all_ranks_the_reduction(two_nodes, dtype, reduction):
    results = run_ranks(two_nodes, SIZE, lambda group: group.all_reduce(
        values(group.rank, 1000, dtype), reduction=reduction).wait())
    wanted = REDUCTIONS[reduction](inputs(1000, dtype), dtype=dtype) \
        if reduction in ("sum", "product") else REDUCTIONS[reduction](inputs(1000, dtype))
    for result in results:
        np.testing.assert_array_equal(result, wanted)


def test_all_reduce_averages_floats_and_refuses_to_average_integers(two_nodes):
    def work(group):
        with pytest.raises(tern.InvalidArgumentError):
            group.all_reduce(np.ones(4, np.int32), reduction="average")
        return group.all_reduce(np.full(4, 3.0 * group.rank), reduction="average").wait()

    for result in run_ranks(two_nodes, SIZE, work):
        np.testing.assert_allclose(result, 3.0)


def test_all_reduce_of_bfloat16_by_name_and_by_ml_dtypes(two_nodes):
    ones = np.full(8, 0x3F80, np.uint16)
    results = run_ranks(two_nodes, SIZE, lambda group: group.all_reduce(
        ones.copy(), dtype="bfloat16").wait())
    assert all((result == 0x4040).all() for result in results)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    results = run_ranks(two_nodes, SIZE, lambda group: group.all_reduce(
        np.ones(8, ml_dtypes.bfloat16)).wait())
    assert all((result.astype(np.float32) == 3).all() for result in results)


@pytest.mark.parametrize("zero", [0.0, -0.0, 1e-50, np.float64(0)])
def test_a_factor_that_the_library_would_take_for_1_is_refused(two_nodes, zero):
    """A rank whose batch is empty would count in full."""
    def work(group):
        x = np.ones(2 * SIZE, np.float32)
        for factor in ("prescale", "state_scale"):
            given, refused = {factor: zero}, pytest.raises(
                ValueError, match=f"{factor}=.*is 0 as a float of 32 bits.* takes 0 for 1: .*")
            for method in (group.all_reduce, group.reduce, group.reduce_scatter):
                with refused:
                    method(x, **given)
            with refused:
                group.batch().add("all_reduce", x, **given)
        tiny = 2.0 ** -149  # the least that is not 0
        return group.all_reduce(x, prescale=tiny if group.rank else 1.0).wait()

    for result in run_ranks(two_nodes, SIZE, work):
        np.testing.assert_array_equal(result, 1)


def test_out_leaves_the_input_as_it_was(two_nodes):
    def work(group):
        x = values(group.rank, 10)
        out = np.zeros(10, np.float32)
        assert group.all_reduce(x, out=out).wait() is out
        np.testing.assert_array_equal(x, values(group.rank, 10))
        return out

    for result in run_ranks(two_nodes, SIZE, work):
        np.testing.assert_array_equal(result, sum(inputs(10)))


def test_bfloat16_of_dlpack_has_a_new_array_without_ml_dtypes(two_nodes, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)

    def work(group):
        x = Bfloat16FromOutside(np.full(4, 0x3F80 + group.rank, np.uint16))
        return group.all_gather(x).wait()

    for result in run_ranks(two_nodes, SIZE, work):
        assert result.dtype == np.uint16
        np.testing.assert_array_equal(result, np.repeat([0x3F80, 0x3F81, 0x3F82], 4))


def test_broadcast_gives_all_ranks_the_roots_input(two_nodes):
    results = run_ranks(two_nodes, SIZE, lambda group: group.broadcast(
        values(group.rank, 12).reshape(3, 4), root=2).wait())
    for result in results:
        np.testing.assert_array_equal(result, values(2, 12).reshape(3, 4))


@pytest.mark.collective("reduce")
def test_reduce_gives_the_root_the_sum(two_nodes):
    results = run_ranks(two_nodes, SIZE, lambda group: group.reduce(
        values(group.rank, 9), root=1).wait())
    assert results[0] is None and results[2] is None
    np.testing.assert_array_equal(results[1], sum(inputs(9)))


@pytest.mark.collective("reduce_scatter")
def test_reduce_scatter_gives_each_rank_its_share_of_the_sum(two_nodes):
    def work(group):
        return (group.reduce_scatter(values(group.rank, 12)).wait(),
                group.reduce_scatter(values(group.rank, sum(COUNTS)), COUNTS).wait())

    for rank, (equal, counted) in enumerate(run_ranks(two_nodes, SIZE, work)):
        np.testing.assert_array_equal(equal, sum(inputs(12))[4 * rank:4 * rank + 4])
        np.testing.assert_array_equal(
            counted, sum(inputs(sum(COUNTS)))[begin(rank):begin(rank) + COUNTS[rank]])


@pytest.mark.collective("all_gather")
def test_all_gather_gives_all_ranks_all_shares(two_nodes):
    def work(group):
        return (group.all_gather(values(group.rank, 4)).wait(),
                group.all_gather(values(group.rank, COUNTS[group.rank]), COUNTS).wait())

    for equal, counted in run_ranks(two_nodes, SIZE, work):
        np.testing.assert_array_equal(equal, np.concatenate(inputs(4)))
        np.testing.assert_array_equal(counted, np.concatenate(shares()))


def test_a_root_may_be_an_integer_of_numpys(two_nodes):
    def work(group):
        return group.broadcast(values(group.rank, 9), root=np.int64(1)).wait()

    for result in run_ranks(two_nodes, 2, work):
        np.testing.assert_array_equal(result, values(1, 9))


@pytest.mark.collective("gather")
def test_gather_gives_the_root_all_shares(two_nodes):
    results = run_ranks(two_nodes, SIZE, lambda group: group.gather(
        values(group.rank, COUNTS[group.rank]), 2, COUNTS).wait())
    assert results[0] is None and results[1] is None
    np.testing.assert_array_equal(results[2], np.concatenate(shares()))


@pytest.mark.collective("scatter")
def test_scatter_gives_each_rank_its_share_of_the_roots_input(two_nodes):
    def work(group):
        x = values(9, sum(COUNTS)) if group.rank == 1 else None
        out = np.empty(COUNTS[group.rank], np.float32)
        return group.scatter(x, 1, COUNTS, out=out).wait()

    for rank, result in enumerate(run_ranks(two_nodes, SIZE, work)):
        np.testing.assert_array_equal(
            result, values(9, sum(COUNTS))[begin(rank):begin(rank) + COUNTS[rank]])


@pytest.mark.collective("all_to_all")
def test_all_to_all_with_counts_moves_what_each_pair_has(two_nodes):
    pairs = np.random.default_rng(3).integers(0, 5, (SIZE, SIZE))
    pairs[0, 1] = 0

    def part(sender, receiver):
        return np.full(pairs[sender, receiver], 10 * sender + receiver, np.int16)

    def work(group):
        rank = group.rank
        x = np.concatenate([part(rank, other) for other in range(SIZE)])
        with pytest.raises(ValueError, match="or neither"):
            group.all_to_all(x, counts=[1] * SIZE)
        with pytest.raises(ValueError, match="counts give rank"):
            group.all_to_all(x, counts=[len(x) + 1] + [0] * (SIZE - 1), receive_counts=[0] * SIZE)
        return group.all_to_all(x, counts=[int(n) for n in pairs[rank]],
                                receive_counts=[int(n) for n in pairs[:, rank]]).wait()

    for rank, result in enumerate(run_ranks(two_nodes, SIZE, work)):
        wanted = np.concatenate([part(other, rank) for other in range(SIZE)])
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.collective("all_to_all")
def test_counts_that_two_ranks_do_not_agree_about_are_a_mismatch(two_nodes):
    def work(group):
        counts = [1] * SIZE
        received = [1] * SIZE
        if group.rank == 1:
            received[0] = 2
        with pytest.raises(tern.MismatchError, match="rank 1"):
            group.all_to_all(np.zeros(SIZE), counts=counts, receive_counts=received).wait()
        return group.all_reduce(np.ones(3)).wait()

    for result in run_ranks(two_nodes, SIZE, work):
        np.testing.assert_array_equal(result, SIZE)


@pytest.mark.parametrize("dtype", ["bool", "complex64", "complex128"])
def test_booleans_and_complex_numbers(two_nodes, dtype):
    reduction = "or" if dtype == "bool" else "sum"
    results = run_ranks(two_nodes, SIZE, lambda group: group.all_reduce(
        values(group.rank, 100).astype(dtype), reduction=reduction).wait())
    each = [x.astype(dtype) for x in inputs(100)]
    wanted = np.logical_or.reduce(each) if dtype == "bool" else np.add.reduce(each)
    for result in results:
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.collective("all_to_all")
def test_all_to_all_gives_each_rank_the_parts_for_it(two_nodes):
    results = run_ranks(two_nodes, SIZE, lambda group: group.all_to_all(
        values(group.rank, 12)).wait())
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(
            result, np.concatenate([x[4 * rank:4 * rank + 4] for x in inputs(12)]))


def test_a_collective_that_the_library_lacks_names_the_version(two_nodes, monkeypatch):
    functions = library().collectives
    monkeypatch.setattr(library(), "collectives", {"all_reduce": functions["all_reduce"]})

    def work(group):
        with pytest.raises(tern.UnsupportedError, match=f"libtern {library().version}.*gather"):
            group.gather(np.ones(2))

    run_ranks(two_nodes, 1, work)


def test_a_declared_tensor_is_compressed_and_keeps_state(two_nodes):
    def work(group):
        tensor = group.declare("layer", 100_000, role="gradient", recipe="3lc:s=1")
        x = group.client.empty(100_000)
        for _ in range(3):
            x[:] = np.random.default_rng(group.rank).normal(size=x.size)
            group.all_reduce(x, tensor=tensor).wait()
        group.barrier().wait()
        part = tensor.export_state()
        tensor.import_state(part)
        stats = tensor.stats()
        assert (stats.ops, stats.recipe.startswith("ef(3lc")) == (3, True)
        assert len(part) >= 100_000
        return stats.ratio

    assert min(run_ranks(two_nodes, 2, work)) > 4


class Program:
    """A program that chance has made: all ranks draw the same steps, and know the answers."""

    def __init__(self, seed):
        self.seed = seed
        draw = random.Random(seed)
        # A ring is a send to the next rank and a recv from the one before.
        kinds = [kind for kind in ("all_reduce", "broadcast", "reduce", "reduce_scatter",
                                   "all_gather", "gather", "scatter", "all_to_all", "ring")
                 if kind == "ring" or kind in library().collectives]
        self.steps = [(draw.choice(kinds), 3 * draw.randrange(1, 20_000), draw.choice(TYPES),
                       draw.randrange(SIZE), draw.random() < 0.5) for _ in range(20)]

    def begin(self, group, number):
        """Begins a step: its ticket, and its result if the ticket does not give it."""
        kind, count, dtype, root, in_arena = self.steps[number]
        empty = group.client.empty if in_arena else np.empty
        x = empty(count, dtype)
        x[:] = values(group.rank, count, dtype, self.seed + number)
        if kind == "scatter":
            return group.scatter(x if group.rank == root else None, root,
                                 out=empty(count // SIZE, dtype)), None
        if kind == "ring":
            result = empty(count, dtype)
            group.send(x, (group.rank + 1) % SIZE, tag=number)
            return group.recv(result, (group.rank - 1) % SIZE, tag=number), result
        arguments = (x, root) if kind in ("broadcast", "reduce", "gather") else (x,)
        return getattr(group, kind)(*arguments), None

    def run(self, group):
        pending = [self.begin(group, number) for number in range(len(self.steps))]
        waited = [(ticket.wait(), result) for ticket, result in pending]
        return [given if result is None else result for given, result in waited]

    def answer(self, number, rank):
        kind, count, dtype, root, _ = self.steps[number]
        every = inputs(count, dtype, self.seed + number)
        total = np.add.reduce(every, dtype=dtype)
        share = slice(rank * (count // SIZE), (rank + 1) * (count // SIZE))
        return {"all_reduce": total, "broadcast": every[root],
                "reduce": total if rank == root else None,
                "reduce_scatter": total[share],
                "all_gather": np.concatenate(every),
                "gather": np.concatenate(every) if rank == root else None,
                "scatter": every[root][share],
                "all_to_all": np.concatenate([x[share] for x in every]),
                "ring": every[(rank - 1) % SIZE]}[kind]


FIRST_SEED = int(os.environ.get("TERN_SEED", "1"))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 10))
def test_a_random_program_agrees_with_numpy(two_nodes, seed):
    print(f"TERN_SEED={seed}")
    program = Program(seed)
    for rank, results in enumerate(run_ranks(two_nodes, SIZE, program.run)):
        for number, result in enumerate(results):
            wanted = program.answer(number, rank)
            if wanted is None:
                assert result is None
            else:
                np.testing.assert_array_equal(result, wanted, str(program.steps[number]))
