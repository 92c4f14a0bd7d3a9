"""Every collective on memory that is no NumPy array: DLPack tensors and buffers."""

import array
import gc
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
from test_arrays import FromOutside

from cluster import run_ranks

SIZE = 3  # two ranks on one node, one on the other
SHARE = 4
ROOT = 1

pytestmark = pytest.mark.collective("reduce", "reduce_scatter", "all_gather", "gather", "scatter",
                                    "all_to_all", "send", "recv")


class Bytes(bytearray):
    """One that a weak reference can name."""


class Kind(NamedTuple):
    """`make`: such memory with the values of an array. `owner`: what holds its bytes."""

    dtype: str
    make: Any
    owner: Any


KINDS = {
    "dlpack": Kind("float32", lambda x: FromOutside(x.copy()), lambda memory: memory.x),
    "array": Kind("float32", lambda x: array.array("f", x), lambda memory: memory),
    "bytearray": Kind("uint8", lambda x: Bytes(x.tobytes()), lambda memory: memory),
    "memoryview": Kind("float64", lambda x: memoryview(array.array("d", x)),
                       lambda memory: memory.obj)}


def values(rank, dtype):
    """Small whole numbers, so that every order of addition gives the same."""
    return np.random.default_rng(rank).integers(0, 4, SIZE * SHARE).astype(dtype)


def shown(memory):
    """The values in it, as NumPy has them."""
    return memory.x if isinstance(memory, FromOutside) else np.asarray(memoryview(memory))


class Case(NamedTuple):
    """What a rank does. `x`: its input; `answer`: its output; None: it has none."""

    x: Any
    arguments: tuple[Any, ...]
    answer: Any


def case(name, rank, dtype):
    every = [values(other, dtype) for other in range(SIZE)]
    share = slice(rank * SHARE, (rank + 1) * SHARE)
    total, begun = np.add.reduce(every, dtype=dtype), [x[:SHARE] for x in every]
    at_root = rank == ROOT
    return {
        "all_reduce": Case(every[rank], (), total),
        "broadcast": Case(every[rank], (ROOT,), every[ROOT]),
        "reduce": Case(every[rank], (ROOT,), total if at_root else None),
        "reduce_scatter": Case(every[rank], (), total[share]),
        "all_gather": Case(begun[rank], (), np.concatenate(begun)),
        "gather": Case(begun[rank], (ROOT,), np.concatenate(begun) if at_root else None),
        "scatter": Case(every[ROOT] if at_root else None, (ROOT,), every[ROOT][share]),
        "all_to_all": Case(every[rank], (), np.concatenate([x[share] for x in every]))}[name]


NAMES = ["all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "gather", "scatter",
         "all_to_all"]
IN_PLACE = {"all_reduce", "broadcast", "reduce"}


def test_a_dlpack_tensor_of_these_tests_is_nothing_else():
    x = FromOutside(np.zeros(3))
    assert not isinstance(x, np.ndarray) and not hasattr(x, "__array_interface__")
    with pytest.raises(TypeError):
        memoryview(x)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_out_takes_the_result_and_the_input_stays(two_nodes, kind, name):
    dtype, make, _ = KINDS[kind]

    def work(group):
        given, arguments, answer = case(name, group.rank, dtype)
        x = None if given is None else make(given)
        out = None if answer is None else make(np.zeros_like(answer))
        assert getattr(group, name)(x, *arguments, out=out).wait() is out
        if given is not None:
            np.testing.assert_array_equal(shown(x), given)
        if answer is not None:
            np.testing.assert_array_equal(shown(out), answer)

    run_ranks(two_nodes, SIZE, work)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_without_out_the_result_is_in_place_or_new(two_nodes, kind, name):
    dtype, make, _ = KINDS[kind]

    def work(group):
        given, arguments, answer = case(name, group.rank, dtype)
        # What comes of a scatter is known at its root alone.
        more = {"out": make(np.zeros_like(answer))} if given is None else {}
        x = None if given is None else make(given)
        result = getattr(group, name)(x, *arguments, **more).wait()
        if answer is None:
            assert result is None
        else:
            assert (result is x) == (name in IN_PLACE)
            np.testing.assert_array_equal(shown(result), answer)
            assert shown(result).dtype == dtype
        if name not in IN_PLACE and given is not None:
            np.testing.assert_array_equal(shown(x), given)

    run_ranks(two_nodes, SIZE, work)


@pytest.mark.parametrize("kind", KINDS)
def test_a_send_meets_a_recv(two_nodes, kind):
    dtype, make, _ = KINDS[kind]

    def work(group):
        before = (group.rank - 1) % SIZE
        x, room = make(values(group.rank, dtype)), make(np.zeros(SIZE * SHARE, dtype))
        sending = group.send(x, (group.rank + 1) % SIZE)
        received = group.recv(room, before).wait()
        sending.wait()
        assert (received.source, received.count) == (before, SIZE * SHARE)
        np.testing.assert_array_equal(shown(room), values(before, dtype))

    run_ranks(two_nodes, SIZE, work)


class Meeting:
    """Of two ranks: rank 1 takes part when rank 0 has looked at what an operation keeps."""

    def __init__(self, kind):
        self.dtype, self._make, self._owner = KINDS[kind]
        self._looked = threading.Event()
        self._alive = []

    def make(self, rank):
        """Memory with the values of a rank; rank 0 is to drop it."""
        memory = self._make(values(rank, self.dtype))
        self._alive.append(weakref.ref(self._owner(memory)))
        return memory

    def alive(self):
        gc.collect()
        return [owner() is not None for owner in self._alive]

    def run(self, nodes, first, second):
        def work(group):
            if group.rank == 0:
                try:
                    return first(group)
                finally:
                    self._looked.set()
            self._looked.wait()
            return second(group).wait()

        return run_ranks(nodes, 2, work)[0]

    def goes_on(self):
        self._looked.set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_ticket_keeps_memory_that_is_dropped_until_it_has_ended(two_nodes, kind):
    meeting = Meeting(kind)

    def first(group):
        ticket = group.all_reduce(meeting.make(0), out=meeting.make(0))
        assert meeting.alive() == [True, True]
        meeting.goes_on()
        result = ticket.wait()
        assert meeting.alive() == [False, True], "the result is there, and the input is not"
        return shown(result)

    result = meeting.run(two_nodes, first, lambda group: group.all_reduce(
        values(1, meeting.dtype)))
    np.testing.assert_array_equal(result, values(0, meeting.dtype) + values(1, meeting.dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_a_recv_keeps_memory_that_is_dropped_until_it_has_ended(two_nodes, kind):
    meeting = Meeting(kind)

    def first(group):
        ticket = group.recv(meeting.make(0), 1)
        assert meeting.alive() == [True]
        meeting.goes_on()
        assert ticket.wait().count == SIZE * SHARE
        assert meeting.alive() == [False]

    meeting.run(two_nodes, first, lambda group: group.send(values(1, meeting.dtype), 0))


@pytest.mark.parametrize("kind", KINDS)
def test_the_client_keeps_memory_whose_ticket_is_dropped_too(two_nodes, kind):
    meeting = Meeting(kind)

    def first(group):
        group.all_reduce(meeting.make(0), out=meeting.make(0))
        group.client._sweep(wanted=True)
        assert meeting.alive() == [True, True]
        meeting.goes_on()
        while any(meeting.alive()):
            group.client._sweep(wanted=True)

    meeting.run(two_nodes, first, lambda group: group.all_reduce(values(1, meeting.dtype)))
