"""The Work of an operation, and the future that C++ and callbacks use."""

import datetime
import errno
import threading

import pytest
import torch
import torch.distributed as dist

import tern
import tern.torch
from ranks import run_ranks
from tern.torch import profiling
from tern.torch import work as works

SOON = datetime.timedelta(milliseconds=20)


def _store():
    return dist.distributed_c10d._get_default_store()


def test_a_wait_has_a_limit_and_the_operation_goes_on(two_nodes):
    def work(rank):
        x = torch.ones(4)
        if rank == 1:
            _store().wait(["waited"])
        started = dist.all_reduce(x, async_op=True)
        if rank == 0:
            assert not started.is_completed() and not started.is_success()
            assert started.exception() is None
            with pytest.raises(RuntimeError, match="all_reduce has not ended within 0.02 s"):
                started.wait(SOON)
            with pytest.raises(TimeoutError):
                started.wait(SOON)
            with pytest.raises(RuntimeError, match="has not ended; wait"):
                started.result()
            _store().set("waited", "yes")
        assert started.wait()
        assert started.is_completed() and started.is_success()
        assert torch.equal(started.result()[0], torch.full((4,), 2.0))
        with pytest.raises(RuntimeError, match="is not a receive"):
            started.source_rank()

    run_ranks(two_nodes, 2, work)


def test_an_end_is_told_where_the_first_try_to_hear_of_it_failed(two_nodes):
    def work(rank):
        if rank == 1:
            _store().wait(["tried"])
        first, second = (dist.all_reduce(torch.ones(2), async_op=True) for _ in range(2))
        told = threading.Event()

        def fails(_client):
            raise OSError(errno.EMFILE, "Too many open files")

        if rank == 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tern.Client, "_notifier", fails)
                with pytest.raises(OSError):
                    first.get_future()
                with pytest.raises(OSError):
                    second.watch(told.set)
            _store().set("tried", "yes")
        second.watch(told.set)
        told.wait()
        return first.get_future().wait()[0].tolist()

    for found in run_ranks(two_nodes, 2, work):
        assert found == [2.0, 2.0]


def test_a_callback_may_wait_for_the_next_operation(two_nodes):
    def work(rank):
        def again(done):
            return dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0]

        # One at a time: what is submitted by two threads at once has no order.
        return [future.then(again).wait().tolist() for future in (
            dist.all_reduce(torch.ones(2), async_op=True).get_future() for _ in range(3))]

    for found in run_ranks(two_nodes, 2, work):
        assert found == [[4.0, 4.0]] * 3


@pytest.mark.parametrize("executor", [works._completing, profiling._ending],
                         ids=["futures", "the profiler"])
def test_a_forked_child_has_threads_of_its_own(two_nodes, executor):
    """The parent has some, which wait for work; the child would wait for them."""
    executor.submit(print).result()
    is_idle = executor._pool._idle_semaphore
    is_idle.acquire()
    is_idle.release()

    def work(rank):
        with torch.autograd.profiler.profile():
            return dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()[0].tolist()

    assert run_ranks(two_nodes, 2, work) == [[2.0, 2.0]] * 2


def test_a_dropped_work_still_gives_its_result(two_nodes):
    def work(rank):
        parts = [torch.zeros(3) for _ in range(2)]
        dist.all_gather(parts, torch.full((3,), rank + 1.0), async_op=True)
        dist.barrier()
        dist.barrier()
        return [part.tolist() for part in parts]

    for found in run_ranks(two_nodes, 2, work):
        assert found == [[1.0] * 3, [2.0] * 3]


def test_more_sends_than_there_are_places_wait_for_whichever_has_arrived(two_nodes):
    """The first send waits for a receive that comes last: whoever waits for the oldest operation
    waits for ever."""
    many = 700  # more than a client has in flight

    def work(rank):
        x = torch.arange(many, dtype=torch.float32)
        if rank == 0:
            sent = [dist.isend(x[:1], 1, tag=many)]
            sent += [dist.isend(x[tag:tag + 1], 1, tag=tag) for tag in range(many)]
            for each in sent:
                each.wait()
            return True
        out = torch.full((many,), -1.0)
        for tag in range(many):
            dist.recv(out[tag:tag + 1], 0, tag=tag)
        last = torch.ones(1)
        dist.recv(last, 0, tag=many)
        return torch.equal(out, x) and last == 0

    assert all(run_ranks(two_nodes, 2, work))


def test_a_failure_has_its_class_everywhere(two_nodes):
    """Ranks that disagree get MismatchError, which names them, from every part of the Work."""
    def work(rank):
        started = dist.all_reduce(torch.ones(2 + rank), async_op=True)
        with pytest.raises(tern.MismatchError, match="rank 1"):
            started.wait()
        with pytest.raises(RuntimeError):
            started.result()
        assert isinstance(started.exception(), tern.MismatchError)
        assert not started.is_success()
        with pytest.raises(RuntimeError, match="rank 1"):
            started.get_future().wait()
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x == 2

    run_ranks(two_nodes, 2, work)


def test_the_profiler_sees_operations(two_nodes):
    def work(rank):
        with torch.autograd.profiler.profile(record_shapes=True) as profile:
            dist.all_reduce(torch.ones(3, 4))
        events = [event for event in profile.function_events if event.name == "tern:all_reduce"]
        return [(event.is_async, event.input_shapes) for event in events]

    for found in run_ranks(two_nodes, 2, work):
        assert found == [(True, [[3, 4]])]


def test_an_operation_ends_whose_event_the_profiler_takes_no_more(two_nodes, monkeypatch):
    """As in what runs when the interpreter ends."""

    def refuse(_):
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(profiling._ending, "submit", refuse)

    def work(rank):
        with torch.autograd.profiler.profile():
            x = torch.ones(2)
            dist.all_reduce(x)
        return x.tolist()

    assert run_ranks(two_nodes, 2, work) == [[2.0, 2.0]] * 2
