"""Arrays beside the arena."""

import concurrent.futures

import numpy as np
import pytest

import tern


def test_a_region_is_used_in_place_however_small_the_arena_is(node):
    client = tern.Client(node.socket, arena_bytes=1 << 20)
    group = client.join(client.mint(), 0, 1)
    with pytest.raises(tern.OutOfMemoryError):
        client.empty((1000, 1000))
    x = client.region((1000, 1000))
    x[:] = 2
    group.all_reduce(x).wait()
    assert (x == 2).all()
    assert client.region(0, "int64").size == 0
    del x
    client.disconnect()


def test_a_copy_that_finds_no_room_in_the_arena_has_a_region(two_nodes):
    """However large the array is; the next one uses it again."""
    def work(rank):
        client = tern.Client(two_nodes[rank].socket, arena_bytes=1 << 20)
        group = client.join(group_id, rank, 2)
        for size in (1 << 20, 1 << 20, 3 << 20):
            x = np.arange(size, dtype=np.float32)
            assert (group.all_reduce(x, out=np.empty_like(x)).wait() == 2 * x).all()
        group.leave()
        client.disconnect()

    with tern.Client(two_nodes[0].socket) as first:
        group_id = first.mint()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(work, range(2)))


def test_an_array_keeps_its_region_after_the_end(node):
    client = tern.Client(node.socket, arena_bytes=1 << 20)
    x = client.region(10, np.float64)
    x[:] = 3
    client.disconnect()
    assert x.sum() == 30
