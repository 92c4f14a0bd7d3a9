"""What a program meets whose arena has little room left, or none."""

import contextlib

import pytest
import torch
import torch.distributed as dist
from test_compression import model_of, same, train
from test_sharded import backward, models

import tern
import tern.torch
from cluster import daemons
from ranks import run_ranks

ARENA = 1 << 20
LITTLE = 80 << 10  # one layer's gradients, and not two


@pytest.fixture(autouse=True)
def small_arena(monkeypatch):
    monkeypatch.setenv("TERN_ARENA_BYTES", str(ARENA))


@contextlib.contextmanager
def room_left(size):
    """Takes all of the arena but for `size` bytes that lie together."""
    client = dist.group.WORLD.tern_group.client
    hole = client.empty(size, "uint8") if size else None
    held, part = [], ARENA
    while part >= 64:
        try:
            held.append(client.empty(part, "uint8"))
        except tern.OutOfMemoryError:
            part //= 2
    del hole
    yield
    held.clear()


def steps(rank, recipe, name):
    """Of a model with a bucket for each layer."""
    model = model_of(0.01)
    if recipe is not None:
        tern.torch.compress(model, recipe=recipe, name=name)
    return train(model, rank, 3)


def test_with_a_little_room_steps_take_turns(two_nodes):
    """What finds no room waits for what is before it, and buffers lie elsewhere."""
    def work(rank):
        wanted = {recipe: steps(rank, recipe, "roomy") for recipe in (None, "3lc:s=1")}
        with room_left(LITTLE):
            submissions = dist.group.WORLD._submissions
            with pytest.raises(tern.OutOfMemoryError):
                submissions.group.client.empty(2 * LITTLE, "uint8")
            assert len(submissions.buffer(2 * LITTLE, torch.uint8)) == 2 * LITTLE
            many = [torch.full((LITTLE // 8,), rank + i) for i in range(20)]
            for started in [dist.all_reduce(each, async_op=True) for each in many]:
                started.wait()
            for i, each in enumerate(many):
                assert torch.all(each == 2 * i + 1)
            # Last: a thread may hold a buffer of theirs for a moment longer.
            for recipe, found in wanted.items():
                same(steps(rank, recipe, "tight"), found)

    run_ranks(two_nodes, 2, work)


def test_what_finds_no_room_waits_for_other_groups_too(two_nodes):
    """All groups of a process share its arena. The other rank begins what holds this one's room
    when there was none for the next."""
    def work(rank):
        other, store = dist.new_group([0, 1]), dist.distributed_c10d._get_default_store()
        beneath = other.tern_group
        submit = beneath.all_reduce
        refused = []

        def watched(*arguments, **named):
            try:
                return submit(*arguments, **named)
            except (tern.WouldBlockError, tern.OutOfMemoryError) as error:
                refused.append(error)
                store.set("refused", "yes")
                raise

        first, second = (torch.full((LITTLE // 8,), rank + i) for i in (1, 2))
        if rank == 1:
            store.wait(["refused"])
            dist.all_reduce(first)
            dist.all_reduce(second, group=other)
        else:
            beneath.all_reduce = watched
            with room_left(LITTLE):
                begun = dist.all_reduce(first, async_op=True)
                dist.all_reduce(second, group=other)
                begun.wait()
            assert refused
        assert torch.all(first == 3) and torch.all(second == 5)

    run_ranks(two_nodes, 2, work)


def test_a_work_of_more_operations_than_a_group_may_have_waits_for_its_own(two_nodes):
    """Also while an operation of another group runs, which ends only when this rank has gone on."""
    def work(rank):
        other = dist.new_group([0, 1])
        passed = torch.zeros(4)
        tensors = [torch.full((4,), rank + 1) for _ in range(200)]
        begun = dist.irecv(passed, 1, group=other) if rank == 0 else None
        dist.all_reduce_coalesced(tensors)
        if begun is None:
            dist.send(torch.ones(4), 0, group=other)
        else:
            begun.wait()
            assert torch.all(passed == 1)
        assert all(torch.all(tensor == 3) for tensor in tensors)

    run_ranks(two_nodes, 2, work)


def sharded_step(rank):
    model, _ = models(2)
    tern.torch.compress(model, recipe="int:bits=8")
    backward(model, rank)


def reduced(rank, count):
    x = torch.full((count,), rank + 1.0)
    dist.all_reduce(x)
    assert torch.all(x == 3)


STEPS = pytest.mark.parametrize("room, step", [
    (0, lambda rank: reduced(rank, 4)),
    (0, lambda rank: steps(rank, None, "model")),
    (0, lambda rank: steps(rank, "3lc:s=1", "model")),
    (0, sharded_step),
    # A module's gradients find room there, and what is cut of them does not.
    (LITTLE, sharded_step),
    (ARENA // 2, lambda rank: reduced(rank, ARENA)),
], ids=["a collective", "a step", "a compressed step", "a sharded step", "half a sharded step",
        "larger than the arena"])


@STEPS
def test_what_finds_no_room_has_memory_beside_the_arena(two_nodes, room, step):
    def work(rank):
        with room_left(room):
            step(rank)

    run_ranks(two_nodes, 2, work)


@pytest.fixture(scope="module")
def strict_nodes():
    """Two daemons that give a user one arena and nothing more."""
    with daemons(2, "--max-arena-bytes", f"{ARENA}B") as nodes:
        yield nodes


@STEPS
def test_without_memory_an_error_says_what_to_do(strict_nodes, room, step):
    def work(rank):
        with room_left(room), pytest.raises(tern.OutOfMemoryError, match="no room in the arena.*"
                                         "free tensors or raise arena_bytes.*[$]TERN_ARENA_BYTES.*"
                                         "ternd makes no region for it: .*max_arena_bytes"):
            step(rank)
        # The group is as it was.
        reduced(rank, 4)

    run_ranks(strict_nodes, 2, work)
