"""Arrays beside the arena."""

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


def test_an_array_keeps_its_region_after_the_end(node):
    client = tern.Client(node.socket, arena_bytes=1 << 20)
    x = client.region(10, np.float64)
    x[:] = 3
    client.disconnect()
    assert x.sum() == 30
