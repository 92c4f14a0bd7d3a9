"""tern.cuda against elements, on the emulated driver."""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import threading

import numpy as np
import pytest
from emulated import Values, device, driver

import tern
from cluster import daemons, run_ranks
from tern import _cuda_library as cuda_library
from tern import cuda
from tern._structs import SIZED

COUNT = 20_003  # several chunks
STEPS = 3
RECIPE = "int:bits=8"


@pytest.fixture(scope="module")
def nodes():
    driver()  # a rank that skips by itself would fail the other
    with daemons(2, "--chunk-bytes", "16KiB", "--lossy-min-bytes", "1KiB") as started:
        yield started


def gradient(rank, step):
    return np.random.default_rng(10 * step + rank).standard_normal(COUNT).astype("float32")


def declare(group, on_gpu, name="w", recipe=RECIPE):
    return group.declare(name, COUNT, role="gradient", recipe=recipe, client_blocks=on_gpu)


def on_elements(group, steps=STEPS, name="elements"):
    tensor = declare(group, False, name)
    return [group.all_reduce(gradient(group.rank, step), tensor=tensor,
                             reduction="average").wait().copy() for step in range(steps)]


def test_a_gpu_and_elements_have_the_same_bits(nodes):
    def work(group):
        expected = on_elements(group)
        tensor = declare(group, group.rank == 0)
        results = []
        if group.rank == 1:
            for step in range(STEPS):
                results.append(group.all_reduce(gradient(1, step), tensor=tensor,
                                                reduction="average").wait().copy())
        else:
            values = Values(gradient(0, 0))
            with device(group.client) as gpu:
                bound = gpu.bind(tensor)
                for step in range(STEPS):
                    values.put(gradient(0, step))
                    bound.all_reduce(values.address, reduction="average",
                                     stream_waits=step == 0).wait()
                    results.append(values.get())
                stats = gpu.stats()
                assert (stats.operations, stats.failures) == (STEPS, 0)
                assert stats.device_bytes > 0 and stats.pinned_bytes > 4 * COUNT
                bound.release()
                assert gpu.stats().device_bytes == 0
            values.free()
        for result, wanted in zip(results, expected):
            np.testing.assert_array_equal(result.view("uint32"), wanted.view("uint32"))

    run_ranks(nodes, 2, work)


def test_a_checkpoint_has_what_is_owed_on_the_gpu(nodes):
    def work(group):
        on_gpu = group.rank == 0
        tensor = declare(group, on_gpu)
        values = Values(gradient(0, 0)) if on_gpu else None
        gpu = device(group.client) if on_gpu else None
        kept = gpu.bind(tensor) if on_gpu else tensor

        def step(number):
            if not on_gpu:
                return group.all_reduce(gradient(1, number), tensor=tensor).wait().copy()
            values.put(gradient(0, number))
            kept.all_reduce(values.address).wait()
            return values.get()

        step(0)
        part = kept.export_state()
        group.barrier().wait()
        first = step(1)
        kept.import_state(part)
        group.barrier().wait()
        np.testing.assert_array_equal(step(1), first)
        if on_gpu:
            gpu.close()
            values.free()

    run_ranks(nodes, 2, work)


def test_what_makes_no_sense_is_refused(nodes):
    def work(group):
        if group.rank == 1:
            return
        values = Values(gradient(0, 0))
        gpu = device(group.client)
        with pytest.raises(tern.UnknownTensorError):
            gpu.bind(declare(group, False, "plain"))
        with pytest.raises(tern.UnsupportedError):
            gpu.bind(declare(group, True, "six", "int:bits=6"))
        tensor = declare(group, True)
        bound = gpu.bind(tensor)
        with pytest.raises(tern.InvalidArgumentError, match="multiples of 16"):
            bound.all_reduce(values.address + 4)
        with pytest.raises(ValueError, match="reduction"):
            bound.all_reduce(values.address, reduction="median")
        for zero in (0.0, 1e-50):
            with pytest.raises(ValueError, match="state_scale=.* takes 0 for 1: declare"):
                bound.all_reduce(values.address, state_scale=zero)
        tensor.release()  # and with it what is bound
        with pytest.raises(tern.ClosedError):
            bound.all_reduce(values.address)
        gpu.close()
        with pytest.raises(tern.ClosedError):
            gpu.stats()
        values.free()

    run_ranks(nodes, 2, work)


def test_what_is_in_flight_keeps_the_tensor(nodes):
    def work(group):
        if group.rank == 1:
            tensor = declare(group, False)
            group.barrier().wait()
            group.all_reduce(gradient(1, 0), tensor=tensor).wait()
            group.barrier().wait()
            return
        values = Values(gradient(0, 0))
        gpu = device(group.client)
        bound = gpu.bind(declare(group, True))
        ticket = bound.all_reduce(values.address)
        assert not ticket.test()
        with pytest.raises(tern.WaitTimeoutError):
            ticket.wait(0.01)
        with pytest.raises(tern.WouldBlockError):
            bound.all_reduce(values.address)
        with pytest.raises(tern.WouldBlockError):
            bound.release()
        with pytest.raises(tern.WouldBlockError):
            bound.tensor.release()
        group.barrier().wait()
        ticket.wait()
        ticket.wait()  # the same answer
        group.barrier().wait()
        group.leave()  # gives back what is bound
        with pytest.raises(tern.ClosedError):
            bound.all_reduce(values.address)
        gpu.close()
        values.free()

    # The barrier at the end of a rank's work finds the group left.
    with pytest.raises(tern.TernError, match="left"):
        run_ranks(nodes, 2, work)


def test_no_library_is_told_with_a_way_out(monkeypatch):
    monkeypatch.setenv("TERN_CUDA_LIBRARY", "/nowhere/libtern_cuda.so.1")
    cuda_library.cuda_library.cache_clear()
    with pytest.raises(tern.LibraryError, match="libtern-cuda1"):
        cuda_library.cuda_library()
    cuda_library.cuda_library.cache_clear()


def test_every_field_is_where_c_has_it(tmp_path):
    root = pathlib.Path(__file__).parents[2]
    header = pathlib.Path(os.environ.get("TERN_CUDA_INCLUDE", root / "cuda/include"))
    compiler = shutil.which("cc")
    if compiler is None or not (header / "tern/cuda.h").exists():
        pytest.skip(f"no C compiler, or no tern/cuda.h in {header}")
    fields = [(name, field) for name, struct in cuda_library.SIZED.items()
              for field, *_ in struct._fields_]
    place = "offsetof({0}, {1}), sizeof((({0}*)0)->{1})"
    lines = "".join(f'printf("%zu %zu\\n", {place.format(name, field)});'
                    for name, field in fields)
    (tmp_path / "ask.c").write_text(f'#include <stddef.h>\n#include <stdio.h>\n'
                                    f'#include "tern/cuda.h"\nint main(void) {{ {lines} }}\n')
    subprocess.run([compiler, "-I", header, "-I", root / "client_lib/include", tmp_path / "ask.c",
                    "-o", tmp_path / "ask"], check=True)
    said = subprocess.run([tmp_path / "ask"], check=True, capture_output=True, text=True).stdout
    for (name, field), line in zip(fields, said.splitlines()):
        offset, size = map(int, line.split())
        descriptor = getattr(cuda_library.SIZED[name], field)
        assert (descriptor.offset, descriptor.size) == (offset, size), f"{name}.{field}"
    assert not set(cuda_library.SIZED) & set(SIZED)
    assert ctypes.sizeof(cuda_library.CudaOp) == 40


def test_leaving_ends_what_is_in_flight_on_all_ranks(nodes):
    def work(group):
        if group.rank == 1:
            tensor = declare(group, False)
            group.barrier().wait()
            with pytest.raises((tern.OperationCancelledError, tern.GroupLeftError,
                                tern.EpochEndedError)):
                group.all_reduce(gradient(1, 0), tensor=tensor).wait(20)
                group.all_reduce(gradient(1, 0), tensor=tensor).wait(20)
            raise Done
        values = Values(gradient(0, 0))
        gpu = device(group.client)
        bound = gpu.bind(declare(group, True))
        ticket = bound.all_reduce(values.address)
        group.barrier().wait()
        group.leave()
        with pytest.raises(tern.OperationCancelledError):
            ticket.wait(0)
        gpu.close()
        assert bound._ending is None
        values.free()
        raise Done

    class Done(Exception):
        """In place of the barrier at the end, for which nobody is left."""

    with pytest.raises(Done):
        run_ranks(nodes, 2, work)


def test_a_dropped_ticket_keeps_no_place(nodes, caplog):
    def work(group):
        tensor = declare(group, group.rank == 0)
        if group.rank == 1:
            for step in range(6):
                group.all_reduce(gradient(1, step), tensor=tensor).wait()
            return
        values = Values(gradient(0, 0))
        gpu = device(group.client, operations=2)
        bound = gpu.bind(tensor)
        others = [gpu.bind(declare(group, True, f"other{i}")) for i in range(2)]
        for _ in range(6):
            while True:
                try:
                    bound.all_reduce(values.address)  # nobody asks how it ends
                    break
                except tern.WouldBlockError:  # the one before runs still
                    pass
        while not bound._running.has_ended(None):
            pass
        assert not cuda._in_flight
        del others
        gpu.close()
        values.free()

    run_ranks(nodes, 2, work)


def follow(group, tensor):
    """Rank 1 submits when the other's operation is in flight."""
    group.barrier().wait()
    group.all_reduce(gradient(1, 0), tensor=tensor).wait()


def test_an_operation_goes_on_where_a_handler_raises_in_its_call(nodes, monkeypatch):
    def work(group):
        tensor = declare(group, group.rank == 0)
        if group.rank == 1:
            return follow(group, tensor)
        values = Values(gradient(0, 0))
        with device(group.client, operations=1) as gpu:
            bound, check = gpu.bind(tensor), gpu._library.check

            def interrupted(name, *arguments):
                check(name, *arguments)
                raise KeyboardInterrupt

            with monkeypatch.context() as patched:
                patched.setattr(gpu._library, "check", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    bound.all_reduce(values.address)
            assert bound._running in cuda._in_flight
            group.barrier().wait()
            while not bound._running.has_ended(None):
                pass
            assert bound._running.error is None and not cuda._in_flight
        values.free()

    run_ranks(nodes, 2, work)


def test_who_asks_does_not_wait_for_another_who_does(nodes):
    """Who holds the lock may be this very thread, below a signal's handler."""
    def work(group):
        tensor = declare(group, group.rank == 0)
        if group.rank == 1:
            return follow(group, tensor)
        values = Values(gradient(0, 0))
        with device(group.client) as gpu:
            ticket = gpu.bind(tensor).all_reduce(values.address)
            with ticket._operation._lock:
                assert not ticket.test()
                with pytest.raises(tern.WaitTimeoutError):
                    ticket.wait(timeout=0.01)
            group.barrier().wait()
            ticket.wait()
        values.free()

    run_ranks(nodes, 2, work)


def test_what_is_in_flight_outlives_its_references(nodes):
    def work(group):
        tensor = declare(group, group.rank == 0)
        if group.rank == 1:
            return follow(group, tensor)
        values = Values(gradient(0, 0))
        ticket = device(group.client).bind(tensor).all_reduce(values.address)
        del tensor
        gc.collect()
        group.barrier().wait()
        ticket.wait()
        values.free()

    run_ranks(nodes, 2, work)


def test_garbage_ends_in_an_order_that_the_library_can_bear(nodes):
    """In a cycle the collector finalizes in any order, and the library needs client and group."""
    class Holder:
        pass

    def work(group):
        tensor = declare(group, group.rank == 0)
        if group.rank == 0:
            values = Values(gradient(0, 0))
            holder = Holder()
            holder.itself = holder
            holder.device = device(group.client)
            holder.bound = holder.device.bind(tensor)
            holder.bound.all_reduce(values.address).wait()
            holder.kept = group, group.client, tensor
            values.free()
        else:
            group.all_reduce(gradient(1, 0), tensor=tensor).wait()

    run_ranks(nodes, 2, work)
    gc.collect()
    mapped = pathlib.Path("/proc/self/maps").read_text()
    assert "memfd:tern" not in mapped


@contextlib.contextmanager
def held_by_another_thread(*locks):
    taken, enough = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as held:
            for lock in locks:
                held.enter_context(lock)
            taken.set()
            enough.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def forked_while_another_thread_waits(gpu, bound, ticket, address, pipe):
    uses = (ticket.wait, ticket.test, ticket.cancel, lambda: bound.all_reduce(address),
            bound.export_state, bound.import_state, bound.release, gpu.stats)
    for use in uses:
        try:
            pipe.send(f"returned {use()}")
        except tern.ForkedError as error:
            pipe.send(str(error))
    gpu.close()
    cuda._close_all()
    gpu._client.disconnect()
    pipe.send("ends")


def test_a_child_that_is_forked_while_another_thread_waits_does_not_hang(nodes):
    """That thread has the locks of ticket and tensor, and is not there in the child."""
    def work(group):
        tensor = declare(group, group.rank == 0)
        if group.rank == 1:
            return follow(group, tensor)
        values = Values(gradient(0, 0))
        gpu = device(group.client)
        bound = gpu.bind(tensor)
        ticket = bound.all_reduce(values.address)
        here, there = multiprocessing.Pipe()
        with held_by_another_thread(bound._lock, ticket._operation._lock):
            child = multiprocessing.get_context("fork").Process(
                target=forked_while_another_thread_waits,
                args=(gpu, bound, ticket, values.address, there))
            child.start()
            answers = [here.recv() for _ in range(8)]
            assert all("connect again in the child" in answer for answer in answers), answers
            assert here.recv() == "ends"
            child.join()
        assert child.exitcode == 0
        group.barrier().wait()
        ticket.wait()
        gpu.close()
        values.free()

    run_ranks(nodes, 2, work)
