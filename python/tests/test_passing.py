"""Sends and recvs on two nodes."""

import threading

import numpy as np
import pytest

import tern
from cluster import run_ranks

SIZE = 3  # two ranks on one node, one on the other

pytestmark = pytest.mark.collective("send", "recv")


def values(source, dest, count):
    return (np.arange(count) * (source * SIZE + dest + 1)).astype(np.float32)


@pytest.mark.parametrize("count", [0, 1, 1000, 300_000])
def test_every_rank_exchanges_with_every_rank(two_nodes, count):
    def work(group):
        sends = [group.send(values(group.rank, dest, count), dest, tag=count)
                 for dest in range(SIZE)]
        rooms = [np.full(count + 1, -1, np.float32) for _ in range(SIZE)]
        recvs = [group.recv(room, source, tag=count) for source, room in enumerate(rooms)]
        received = [ticket.wait() for ticket in recvs]
        assert [ticket.wait() for ticket in sends] == [None] * SIZE
        assert [(one.source, one.count) for one in received] == [
            (source, count) for source in range(SIZE)]
        return rooms

    for rank, rooms in enumerate(run_ranks(two_nodes, SIZE, work)):
        for source, room in enumerate(rooms):
            np.testing.assert_array_equal(room[:-1], values(source, rank, count))
            assert room[-1] == -1, "nothing came for it"


def test_a_recv_from_any_source_tells_which(two_nodes):
    def work(group):
        if group.rank != 0:
            group.send(np.full(4, group.rank, np.int32), 0, tag=5).wait()
            return None
        seen = {}
        for _ in range(SIZE - 1):
            room = np.zeros(4, np.int32)
            received = group.recv(room, tag=5).wait()
            seen[received.source] = room
        return seen

    seen = run_ranks(two_nodes, SIZE, work)[0]
    assert sorted(seen) == [1, 2]
    for source, room in seen.items():
        assert (room == source).all()


def test_what_does_not_fit_fails_on_both_sides(two_nodes):
    def work(group):
        if group.rank == 2:
            return None
        with pytest.raises(tern.MismatchError, match="has room for 9"):
            if group.rank == 0:
                group.send(np.zeros(10, np.float32), 1).wait()
            else:
                group.recv(np.zeros(9, np.float32), 0).wait()
        with pytest.raises(tern.MismatchError, match="rank 0 sends f32 .* receives f64"):
            if group.rank == 0:
                group.send(np.zeros(10, np.float32), 1).wait()
            else:
                group.recv(np.zeros(10), 0).wait()
        return None

    run_ranks(two_nodes, SIZE, work)


def test_refuses_what_has_no_meaning(two_nodes):
    def work(group):
        x = np.zeros(4, np.float32)
        for peer in (-1, SIZE):
            with pytest.raises(ValueError, match="is no rank"):
                group.send(x, peer)
            with pytest.raises(ValueError, match="is no rank"):
                group.recv(x, peer)
        for tag in (-1, 1 << 32):
            with pytest.raises(ValueError, match="tag"):
                group.send(x, 0, tag)
        x.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            group.recv(x, 0)

    run_ranks(two_nodes, SIZE, work)


def test_a_recv_that_nobody_meets_can_be_cancelled(two_nodes):
    waiting = threading.Barrier(SIZE)

    def work(group):
        ticket = group.recv(np.zeros(4), None if group.rank else 1, tag=9)
        waiting.wait()
        ticket.cancel()
        with pytest.raises(tern.OperationCancelledError, match=f"cancelled by rank {group.rank}"):
            ticket.wait()

    run_ranks(two_nodes, SIZE, work)


def test_a_recipe_loses_what_it_drops_on_the_way(two_nodes):
    count = 100_000
    x = values(0, 1, count) + np.float32(0.37)

    def work(group):
        if group.rank == 0:
            group.send(x, 1, recipe="bf16").wait()  # on the other node
        if group.rank == 1:
            room = np.zeros(count, np.float32)
            group.recv(room, 0, recipe="none(int:bits=8)").wait()
            return room
        return None

    room = run_ranks(two_nodes, SIZE, work)[1]
    rounded = ((x.view(np.uint32) + 0x7FFF + ((x.view(np.uint32) >> 16) & 1)) >> 16) << 16
    np.testing.assert_array_equal(room, rounded.view(np.float32))


def test_a_recv_without_a_recipe_does_not_take_what_has_lost_values(two_nodes):
    def work(group):
        x = np.zeros(10, np.float32)
        if group.rank == 0:
            with pytest.raises(tern.MismatchError, match="by a recipe that loses values"):
                group.send(x, 2, recipe="bf16").wait()
            with pytest.raises(tern.BadRecipeError, match="takes no tensor"):
                group.send(x, 2, recipe="3lc:s=1").wait()
        if group.rank == 2:
            with pytest.raises(tern.MismatchError, match="the recv has none"):
                group.recv(x, 0).wait()

    run_ranks(two_nodes, SIZE, work)
