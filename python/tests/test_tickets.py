"""Tickets: waiting, awaiting, cancelling, dropping; and that nothing is left behind."""

import asyncio
import ctypes
import gc
import os
import pathlib
import select
import threading
import time
import weakref

import numpy as np
import pytest

import tern
from cluster import run_ranks


def both(two_nodes, work):
    return run_ranks(two_nodes, 2, work)


def test_every_wait_on_a_ticket_gives_the_same_answer(two_nodes):
    def work(group):
        x = np.ones(1000)
        ticket = group.all_reduce(x)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(ticket.wait()))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(answer is x for answer in answers) and ticket.test()

    both(two_nodes, work)


def test_a_wait_that_times_out_leaves_the_operation_running(two_nodes):
    goes_on = threading.Event()

    def work(group):
        if group.rank == 1:
            goes_on.wait()
            return group.all_reduce(np.ones(5)).wait()[0]
        ticket = group.all_reduce(np.ones(5))
        assert not ticket.test()
        with pytest.raises(TimeoutError, match="goes on"):
            ticket.wait(timeout=0.01)
        goes_on.set()
        return ticket.wait()[0]

    assert both(two_nodes, work) == [2, 2]


def test_cancel_ends_the_operation_on_all_ranks(two_nodes):
    def work(group):
        tensor = group.declare("t", 5, "float64")
        if group.rank == 0:
            ticket = group.all_reduce(np.ones(5), tensor=tensor)
            ticket.cancel()
            with pytest.raises(tern.OperationCancelledError):
                ticket.wait()
            with pytest.raises(tern.OperationCancelledError):
                ticket.wait()

    both(two_nodes, work)


def test_tickets_are_awaited_in_any_order(two_nodes):
    def work(group):
        async def main():
            tickets = [group.all_reduce(np.full(100, float(i))) for i in range(50)]
            tickets.reverse()
            return [result[0] for result in await asyncio.gather(*tickets)]

        return asyncio.run(main())

    assert both(two_nodes, work) == [[2.0 * i for i in reversed(range(50))]] * 2


def test_an_awaited_failure_is_raised(two_nodes):
    def work(group):
        async def main():
            with pytest.raises(tern.MismatchError):
                await group.all_reduce(np.ones(10 + group.rank))

        asyncio.run(main())

    both(two_nodes, work)


def test_futures_are_set_beside_waits_of_other_threads(two_nodes):
    def work(group):
        futures = []
        for i in range(100):
            ticket = group.all_reduce(np.full(10, float(i)))
            futures.append(ticket.future())
            group.all_reduce(np.ones(10)).wait()
        return [future.result()[0] for future in futures]

    assert both(two_nodes, work) == [[2.0 * i for i in range(100)]] * 2


def test_a_future_ends_when_the_client_disconnects(node):
    client, other = tern.Client(node.socket), tern.Client(node.socket)
    group_id, groups = client.mint(), []
    joined = threading.Thread(target=lambda: groups.append(other.join(group_id, 1, 2)))
    joined.start()
    future = client.join(group_id, 0, 2).barrier().future()
    joined.join()
    client.disconnect()
    with pytest.raises(tern.TernError):
        future.result()
    other.disconnect()


def test_a_dropped_ticket_keeps_its_arrays_until_its_end(two_nodes):
    def work(group):
        # More than may be unreported at a time: those that were dropped make room.
        for i in range(600):
            group.all_reduce(np.full(1000, float(i)))
            if i % 64 == 63:
                group.barrier().wait()
        return group.all_reduce(np.ones(3)).wait()[0]

    assert both(two_nodes, work) == [2, 2]


def test_a_dropped_ticket_keeps_its_group_until_its_end(two_nodes):
    """Rank 0 drops both before rank 1 takes part, and leaves once its client asks for the end."""
    clients = [tern.Client(node.socket) for node in two_nodes]
    group_id, groups = clients[0].mint(), {}

    def join(rank):
        groups[rank] = clients[rank].join(group_id, rank, 2)

    other = threading.Thread(target=join, args=(1,))
    other.start()
    join(0)
    other.join()
    groups[0].all_reduce(np.ones(3))
    del groups[0]
    gc.collect()
    assert groups[1].all_reduce(np.ones(3)).wait()[0] == 2
    while clients[0]._adopted:
        clients[0]._sweep(wanted=True)
    with pytest.raises(tern.GroupLeftError):
        groups[1].barrier().wait()
    for client in clients:
        client.disconnect()


def test_a_rank_joins_again_whose_group_only_a_dropped_ticket_kept(node):
    with tern.Client(node.socket) as client:
        group_id = client.mint()
        for _ in range(3):
            client.join(group_id, 0, 1).barrier()
            ended(client)
        assert client.join(group_id, 0, 1).barrier().wait() is None


def test_a_group_is_left_at_once_whatever_its_dropped_tickets_keep(two_nodes):
    clients = [tern.Client(node.socket) for node in two_nodes]
    group_id, groups = clients[0].mint(), {}

    def join(rank):
        groups[rank] = clients[rank].join(group_id, rank, 2)

    other = threading.Thread(target=join, args=(1,))
    other.start()
    join(0)
    other.join()
    groups[0].barrier()
    groups[0].leave()
    assert len(clients[0]._adopted) == 1
    with pytest.raises(tern.GroupLeftError):
        groups[1].all_reduce(np.ones(3)).wait(timeout=10)
    for client in clients:
        client.disconnect()


def test_a_client_that_is_dropped_ends_without_the_collector(node):
    client, other = tern.Client(node.socket), tern.Client(node.socket)
    group_id, groups = client.mint(), []
    joined = threading.Thread(target=lambda: groups.append(other.join(group_id, 1, 2)))
    joined.start()
    client.join(group_id, 0, 2).barrier()
    joined.join()
    assert len(client._adopted) == 1
    gc.disable()
    try:
        dropped = weakref.ref(client)
        del client
        assert dropped() is None
    finally:
        gc.enable()
    with pytest.raises(tern.TernError):
        groups[0].all_reduce(np.ones(3)).wait(timeout=10)
    other.disconnect()


class Asked:
    """A client's library, which does something before it is first asked for an operation."""

    def __init__(self, library, first):
        self._library, self._first = library, [first]
        self.answered = 0

    def __getattr__(self, name):
        return getattr(self._library, name)

    def tern_test(self, connection, number):
        while self._first:
            self._first.pop()()
        status = self._library.tern_test(connection, number)
        self.answered += 1
        return status


class AnnouncedLock:
    """Sets an event when somebody comes for it."""

    def __init__(self, lock, comes):
        self._lock, self._comes = lock, comes

    def __enter__(self):
        self._comes.set()
        return self._lock.__enter__()

    def __exit__(self, *error):
        return self._lock.__exit__(*error)


def with_dropped_tickets(client):
    group = client.join(client.mint(), 0, 1)
    for _ in range(2):
        group.barrier()
    assert len(client._adopted) == 2
    return group


def test_two_threads_may_report_dropped_tickets_at_once(node):
    """Whoever wants their room returns when it is there, whichever thread has made it."""
    waits_or_ends, found = threading.Event(), []

    def report():
        client._sweep(wanted=True)
        found.append(client._library.answered)
        waits_or_ends.set()

    def begin():
        waits_or_ends.clear()
        other.start()
        waits_or_ends.wait()

    with tern.Client(node.socket) as client:
        group, other = with_dropped_tickets(client), threading.Thread(target=report)
        client._sweeping = AnnouncedLock(client._sweeping, waits_or_ends)
        client._library = Asked(client._library, begin)
        client._sweep(wanted=True)
        other.join()
        assert found[0] >= 2
        group.barrier().wait()


def test_a_client_may_disconnect_while_dropped_tickets_are_reported(node):
    client = tern.Client(node.socket)
    group = with_dropped_tickets(client)
    client._library = Asked(client._library, client.disconnect)
    client._sweep(wanted=True)
    with pytest.raises(tern.ClosedError):
        group.barrier()


def test_a_dropped_ticket_outlives_what_a_handler_raises(node):
    """Its arrays are in use, and its room is the client's."""

    def interrupted():
        raise KeyboardInterrupt

    with tern.Client(node.socket) as client:
        group, library = with_dropped_tickets(client), client._library
        client._library = Asked(library, interrupted)
        with pytest.raises(KeyboardInterrupt):
            client._sweep(wanted=True)
        assert len(client._adopted) == 2
        client._library = library
        group.barrier().wait()


class Interrupting:
    """The library, with a signal's handler that raises during one of its functions: Python runs the
    handler when the call has returned."""

    def __init__(self, library, name):
        self._library, self._name = library, name

    def __getattr__(self, name):
        found = getattr(self._library, name)
        if name != self._name:
            return found

        def interrupted(*arguments):
            found(*arguments)
            raise KeyboardInterrupt

        return interrupted


def test_a_declaration_in_which_a_handler_raises_leaves_no_name(node):
    with tern.Client(node.socket) as client:
        group, library = client.join(client.mint(), 0, 1), client._library
        client._library = Interrupting(library, "tern_tensor_declare")
        with pytest.raises(KeyboardInterrupt):
            group.declare("w", 8, role="gradient")
        gc.collect()
        client._library = library
        group.declare("w", 8, role="gradient")


def test_a_connection_in_which_a_handler_raises_is_closed(node, monkeypatch):
    def held():
        gc.collect()
        return set(os.listdir("/proc/self/fd"))

    tern.Client(node.socket).disconnect()  # what the process opens once is open
    before, library = held(), tern.client.library()
    monkeypatch.setattr(tern.client, "library", lambda: Interrupting(library, "tern_connect"))
    with pytest.raises(KeyboardInterrupt):
        tern.Client(node.socket)
    assert held() <= before


def ended(client):
    """Returns when an operation has ended that nobody has reported."""
    fd = ctypes.c_int()
    client._library.check(client._library.tern_fd(client._live(), ctypes.byref(fd)))
    select.select([fd.value], [], [])


@pytest.mark.parametrize("end", [tern.Group.leave, lambda group: group.client.disconnect()],
                         ids=["leave", "disconnect"])
def test_failures_of_dropped_tickets_are_logged_at_the_end(node, tmp_path, monkeypatch, caplog,
                                                           end):
    """Of a group of tern.init(), which leaves with its client."""
    monkeypatch.setenv("TERN_SOCKET", node.socket)
    groups = {}

    def join(rank):
        groups[rank] = tern.init(rank=rank, size=2, id_file=tmp_path / "id")

    other = threading.Thread(target=join, args=(1,))
    other.start()
    join(0)
    other.join()
    for rank, group in groups.items():
        group.all_reduce(np.ones(3 + rank))
    for group in groups.values():
        ended(group.client)
        assert not caplog.records
        end(group)
        assert "rank 0" in caplog.text and len(caplog.records) == 1
        end(group)
        group.client.disconnect()
        assert len(caplog.records) == 1
        caplog.clear()


def test_an_operation_in_flight_is_not_reported_at_the_end(node, caplog):
    client, other = tern.Client(node.socket), tern.Client(node.socket)
    group_id, groups = client.mint(), []
    joined = threading.Thread(target=lambda: groups.append(other.join(group_id, 1, 2)))
    joined.start()
    client.join(group_id, 0, 2).barrier()
    joined.join()
    client.disconnect()
    other.disconnect()
    assert not caplog.records


@pytest.mark.parametrize("lose", [lambda client: client._connection.__del__(),
                                  lambda client: setattr(client, "_forked", True)],
                         ids=["taken by the collector", "in a child"])
def test_a_client_that_has_lost_its_connection_asks_nothing_at_the_end(node, lose):
    client = tern.Client(node.socket)
    with_dropped_tickets(client)
    client._library = Asked(client._library, lambda: pytest.fail("it has asked"))
    lose(client)
    client.disconnect()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_two_hundred_clients_leave_nothing_behind(node):
    def use():
        with tern.Client(node.socket, arena_bytes=4 << 20) as client:
            group = client.join(client.mint(), 0, 1)
            x = client.empty(1000)
            x[:] = 1
            group.all_reduce(x).future().result()
            group.declare("t", 1000)
            group.all_reduce(x)

    use()
    gc.collect()
    before = (threading.active_count(), os.listdir("/dev/shm"))
    open_here, open_there, arenas = descriptors(), node.descriptors(), node.arenas()
    for _ in range(200):
        use()
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "tern-notifier":
            thread.join()
    assert descriptors() <= open_here
    assert (threading.active_count(), os.listdir("/dev/shm")) <= before
    # The daemon has threads that close and unmap what clients leave: they may be some ends behind.
    deadline = time.monotonic() + 60
    while node.descriptors() > open_there or node.arenas() > arenas:
        assert time.monotonic() < deadline, (node.descriptors(), open_there, node.arenas(), arenas)
        time.sleep(0.05)
    assert "memfd:tern" not in pathlib.Path("/proc/self/maps").read_text()


def test_an_arena_is_whole_again_after_many_arrays(node):
    with tern.Client(node.socket, arena_bytes=1 << 20) as client:
        for count in range(1, 2000):
            client.empty(count)
        assert client.empty((1 << 20) - 4096, "uint8").size
