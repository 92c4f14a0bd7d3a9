"""Bad input and faults: exceptions that say what to do, and no hang."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import tern
from cluster import daemons, run_ranks


def test_no_daemon_is_an_error_that_names_the_socket(tmp_path):
    with pytest.raises(tern.DaemonAbsentError, match="nowhere.*") as caught:
        tern.Client(tmp_path / "nowhere")
    assert caught.value.status == 5 and "start it" in caught.value.remedy
    assert isinstance(caught.value, ConnectionError)


def test_no_library_is_an_error_that_names_the_variable(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "import tern; tern.Client()"], capture_output=True, text=True,
        env={**os.environ, "TERN_LIBRARY": str(tmp_path / "libtern.so")})
    assert "LibraryError" in done.stderr and "set TERN_LIBRARY" in done.stderr


def test_import_starts_nothing_and_loads_no_library():
    subprocess.run(
        [sys.executable, "-c", "import threading, tern; assert threading.active_count() == 1; "
         "maps = open('/proc/self/maps').read(); assert 'libtern' not in maps"],
        check=True, env={**os.environ, "TERN_LIBRARY": "/nowhere"})


def test_bad_arguments_are_refused_and_the_group_goes_on(two_nodes):
    def work(group):
        frozen = np.ones(3)
        frozen.flags.writeable = False
        for arguments, kind, sentence in [
                (dict(x=np.ones((4, 4)).T[1:]), ValueError, "contiguous"),
                (dict(x=np.ones(3, np.longdouble)), TypeError, "does not carry"),
                (dict(x=frozen), ValueError, "read-only"),
                (dict(x=np.ones(3), out=frozen), ValueError, "read-only"),
                (dict(x=np.ones(3), out=np.ones(4)), ValueError, "out= has 4 elements"),
                (dict(x=np.ones(3), out=np.ones(3, np.int32)), ValueError, "different types"),
                (dict(x=np.ones(3), reduction="median"), ValueError, "median"),
                (dict(x=np.ones(3), recipe="nonsense", tensor=group.declare("t", 3, "float64")),
                 tern.BadRecipeError, None)]:
            with pytest.raises(kind, match=sentence):
                group.all_reduce(**arguments).wait()
        with pytest.raises(ValueError, match="no rank"):
            group.broadcast(np.ones(3), root=9)
        with pytest.raises(ValueError, match="role"):
            group.declare("u", 3, role="idle")
        with pytest.raises(tern.BadRecipeError):
            group.declare("u", 3, role="gradient", recipe="3lc:s=")
        return group.all_reduce(np.ones(3)).wait().sum()

    assert run_ranks(two_nodes, 1, work) == [3]


def test_an_array_that_is_not_as_its_tensor_was_declared_is_refused(two_nodes):
    """The library would read and write as much memory as the declaration says."""
    def work(group):
        tensor, other = group.declare("t", 4), group.split(0)
        for x, sentence in [(np.ones(4), "type float32, but .* float64"),
                            (np.ones(4, np.int32), "int32"),
                            (np.ones(3, np.float32), "4 elements, but the operation has 3"),
                            (np.ones(0, np.float32), "operation has 0")]:
            for submit in (group.all_reduce, group.broadcast):
                with pytest.raises(ValueError, match=sentence):
                    submit(x, tensor=tensor)
            with pytest.raises(ValueError, match=sentence):
                group.batch().add("all_reduce", x, tensor=tensor)
        with pytest.raises(ValueError, match="another group"):
            other.all_reduce(np.ones(4, np.float32), tensor=tensor)
        return group.all_reduce(np.ones(4, np.float32), tensor=tensor).wait().sum()

    assert run_ranks(two_nodes, 1, work) == [4]


def test_ranks_that_disagree_are_told_who_said_what(two_nodes):
    def work(group):
        with pytest.raises(tern.MismatchError, match="rank|node"):
            group.all_reduce(np.ones(10 + group.rank)).wait()
        return True

    assert run_ranks(two_nodes, 2, work) == [True, True]


def test_counts_that_do_not_fit_are_refused(two_nodes):
    def work(group):
        for counts in ([1], [-1, 2], [1, 2, 3]):
            with pytest.raises((ValueError, tern.UnsupportedError)):
                group.all_gather(np.ones(1), counts)
        for count, out in ((1, 4), (5, 4), (2, 3), (2, 5)):
            with pytest.raises((ValueError, tern.UnsupportedError)):
                group.all_gather(np.ones(count), [2, 2], out=np.ones(out))
        return True

    assert run_ranks(two_nodes, 2, work) == [True, True]


def test_join_says_what_is_wrong(node):
    with tern.Client(node.socket) as client:
        group_id = client.mint()
        with pytest.raises(tern.BadSecretError):
            with client.join(group_id, 0, 1):
                client.join(group_id[:-4] + "0000", 0, 1, timeout=1)
        with pytest.raises(tern.WaitTimeoutError, match="1"):
            client.join(client.mint(), 0, 2, timeout=0.1)
        with pytest.raises(tern.InvalidArgumentError, match="rank must be"):
            client.join(group_id, 2, 2)
        for timeout in (-1, float("nan")):
            with pytest.raises(ValueError, match="0 or more"):
                client.join(group_id, 0, 1, timeout=timeout)


def test_an_endless_timeout_is_one(node):
    forever = float("inf")
    with tern.Client(node.socket, timeout=forever) as client:
        group = client.join(client.mint(), 0, 1, timeout=forever, op_timeout=forever)
        assert group.all_reduce(np.ones(3)).wait(forever).sum() == 3
        with pytest.raises(ValueError, match="nan"):
            group.barrier().wait(float("nan"))


def test_nothing_is_used_after_its_end(node):
    client = tern.Client(node.socket)
    group = client.join(client.mint(), 0, 1)
    tensor = group.declare("t", 8)
    x = client.empty(8)
    x[:] = 1
    tensor.release()
    with pytest.raises(tern.ClosedError, match="declare it again"):
        group.all_reduce(x, tensor=tensor)
    other = client.join(client.mint(), 0, 1)
    other.leave()
    with pytest.raises(tern.ClosedError, match="join again"):
        other.barrier()
    ticket = group.all_reduce(x)
    ticket.wait()
    client.disconnect()
    client.disconnect()
    for use in (client.mint, lambda: client.empty(3), lambda: group.all_reduce(x), group.info,
                tensor.stats):
        with pytest.raises(tern.ClosedError):
            use()
    # The arena stays while an array of it does: reading it never faults.
    assert x.sum() == 8
    assert not client.connected


def test_a_wait_ends_when_another_thread_disconnects(node):
    client, other = tern.Client(node.socket), tern.Client(node.socket)
    group_id, groups = client.mint(), []
    joined = threading.Thread(target=lambda: groups.append(other.join(group_id, 1, 2)))
    joined.start()
    ticket = client.join(group_id, 0, 2).all_reduce(np.ones(3))
    joined.join()
    thread = threading.Timer(0, client.disconnect)
    thread.start()
    with pytest.raises(tern.TernError):
        ticket.wait()
    thread.join()
    other.disconnect()


def test_a_full_arena_is_an_error_and_gives_back_what_goes(node):
    with tern.Client(node.socket, arena_bytes=1 << 20) as client:
        held = client.empty(200_000)
        with pytest.raises(tern.OutOfMemoryError, match="arena"):
            client.empty(200_000)
        view = held[10:20]
        del held
        with pytest.raises(MemoryError):
            client.empty(200_000)
        del view
        assert client.empty(200_000).size == 200_000


def test_an_array_of_the_arena_is_not_copied():
    """There is no room for a copy: what lies elsewhere finds none."""
    with daemons(1, "--max-arena-bytes", "80MiB") as (node,), \
            tern.Client(node.socket, arena_bytes=80 << 20) as client:
        group = client.join(client.mint(), 0, 1)
        x = client.empty(64 << 20, "uint8")
        x[:] = 3
        assert group.all_reduce(x).wait() is x and x.min() == x.max() == 3
        with pytest.raises(tern.OutOfMemoryError, match="arena"):
            group.all_reduce(x.copy())


def test_arrays_in_the_arena_have_every_shape(node):
    with tern.Client(node.socket) as client:
        for shape in (0, 5, (2, 3), (3, 0, 2), ()):
            x = client.empty(shape, "float16")
            assert x.shape == (shape if isinstance(shape, tuple) else (shape,))
            x[...] = 1
        assert client.empty(np.int64(3)).shape == (3,)
        assert client.region([np.int32(2), 3]).shape == (2, 3)


def test_shapes_that_no_array_has_are_refused(node):
    with tern.Client(node.socket) as client:
        for take in (client.empty, client.region):
            for shape in (-1, (2, -3), (0, -1)):
                with pytest.raises(ValueError, match="negative size"):
                    take(shape)
            for shape in (1 << 62, (1 << 40, 1 << 40)):
                with pytest.raises(MemoryError, match="bytes"):
                    take(shape)
            with pytest.raises(TypeError):
                take(2.5)


def child_of_fork(client, group, pipe):
    try:
        group.all_reduce(np.ones(3))
    except tern.ForkedError as error:
        pipe.send(str(error))
    client.disconnect()


def test_a_forked_child_is_told_to_connect_again(node):
    with tern.Client(node.socket) as client:
        group = client.join(client.mint(), 0, 1)
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(
            target=child_of_fork, args=(client, group, there))
        child.start()
        assert "connect again in the child" in here.recv()
        child.join()
        assert child.exitcode == 0
        assert group.all_reduce(np.ones(3)).wait().sum() == 3


def forked_while_another_thread_waits(ticket, client, pipe):
    for use in (ticket.wait, ticket.test, ticket.future, client.mint, ticket.cancel):
        try:
            pipe.send(f"returned {use()}")
        except tern.ForkedError as error:
            pipe.send(str(error))
    client.disconnect()


def test_a_child_that_is_forked_while_another_thread_waits_does_not_hang(two_nodes):
    """That thread has the ticket's lock, and is not there in the child; nor is the one that tells
    futures."""
    with tern.Client(two_nodes[0].socket) as client, tern.Client(two_nodes[0].socket) as other:
        group_id, groups = client.mint(), []
        joined = threading.Thread(target=lambda: groups.append(other.join(group_id, 1, 2)))
        joined.start()
        group = client.join(group_id, 0, 2)
        joined.join()
        ticket = group.barrier()
        told = ticket.future()
        here, there = multiprocessing.Pipe()
        with ticket._lock:  # as a thread has it that waits
            child = multiprocessing.get_context("fork").Process(
                target=forked_while_another_thread_waits, args=(ticket, client, there))
            child.start()
        answers = [here.recv() for _ in range(5)]
        assert all("connect again in the child" in answer for answer in answers), answers
        child.join()
        assert child.exitcode == 0
        groups[0].barrier()
        assert told.result() is None


def spawned(socket, group_id, rank, pipe):
    with tern.Client(socket) as client, client.join(group_id, rank, 2) as group:
        pipe.send(float(group.all_reduce(np.ones(3)).wait()[0]))
        group.barrier().wait()


def test_multiprocessing_ranks_that_are_spawned_meet(node):
    with tern.Client(node.socket) as client:
        group_id = client.mint()
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(2)]
        ranks = [context.Process(target=spawned, args=(node.socket, group_id, rank, there))
                 for rank, (_, there) in enumerate(pipes)]
        for rank in ranks:
            rank.start()
        assert [here.recv() for here, _ in pipes] == [2.0, 2.0]
        for rank in ranks:
            rank.join()


def dies(socket, group_id, pipe):
    client = tern.Client(socket)
    group = client.join(group_id, 1, 3)
    pipe.send("joined")
    pipe.recv()
    group.all_reduce(np.ones(1 << 20))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_rank_that_dies_is_named_to_all_others(two_nodes):
    """To the one on its own node, and to the one on the other."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    submitted = threading.Barrier(2)

    def survive(rank, client, group_id):
        with client.join(group_id, rank, 3) as group:
            ticket = group.all_reduce(client.empty(8), tensor=group.declare("of two", 8))
            submitted.wait()
            if rank == 0:
                assert here.recv() == "joined"
                here.send("go")
            with pytest.raises(tern.RankLostError, match="lost rank 1 on node 1 "):
                ticket.wait()

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(tern.Client(node.socket)) for node in two_nodes]
        group_id = clients[0].mint()
        dying = context.Process(target=dies, args=(two_nodes[1].socket, group_id, there))
        dying.start()
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor())
        survivors = [pool.submit(survive, rank, client, group_id)
                     for rank, client in zip((0, 2), clients)]
        for survivor in survivors:
            survivor.result()
        dying.join()


def test_a_daemon_that_dies_ends_every_wait():
    with daemons(2) as nodes:
        def work(group):
            if group.rank == 0:
                # An operation that rank 1 never submits.
                ticket = group.all_reduce(np.ones(8), tensor=group.declare("t", 8, "float64"))
                nodes[0].kill()
                with pytest.raises(tern.DaemonLostError):
                    ticket.wait()
                with pytest.raises(tern.DaemonLostError):
                    group.barrier()
            else:
                with pytest.raises(tern.TernError):
                    group.all_reduce(np.ones(9), tensor=group.declare("u", 9, "float64")).wait()
            raise Ended

        with pytest.raises(Ended):
            run_ranks(nodes, 2, work)
        nodes[0].start()


class Ended(Exception):
    pass


def test_ctrl_c_ends_a_wait_and_a_join(node):
    source = (
        "import os, signal, sys, threading, numpy, tern\n"
        # A shell's job in the background ignores it, and so does what that starts.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "client = tern.Client(sys.argv[1])\n"
        "def interrupted(call):\n"
        "    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    try: call()\n"
        "    except KeyboardInterrupt: print('interrupted')\n"
        "interrupted(lambda: client.join(client.mint(), 0, 2, timeout=600))\n"
        "a = client.join(client.mint(), 0, 1)\n"
        "group_id, other = client.mint(), tern.Client(sys.argv[1])\n"
        "joined = []\n"
        "joining = threading.Thread(target=lambda: joined.append(other.join(group_id, 1, 2)))\n"
        "joining.start()\n"
        "group = client.join(group_id, 0, 2)\n"
        "joining.join()\n"
        "ticket = group.barrier()\n"
        "interrupted(ticket.wait)\n"
        # The end comes when the signal has come, and before anybody has seen it.
        "def interrupt_and_end():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    for _ in range(2): joined[0].barrier().wait()\n"
        "second = group.barrier()\n"
        "ending = threading.Timer(0.1, interrupt_and_end)\n"
        "try:\n"
        "    ending.start()\n"
        "    second.wait()\n"
        "except KeyboardInterrupt: print('interrupted')\n"
        "ticket.wait(60)\n"
        "second.wait(60)\n"
        "ending.join()\n"
        "other.disconnect()\n")
    done = subprocess.run([sys.executable, "-c", source, node.socket], capture_output=True,
                          text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n" * 3, "", 0)
