"""Signals that tell the launcher to end, wherever it is."""

import asyncio
import fcntl
import os
import pathlib
import signal
import sys
import tempfile
import threading

import pytest

from tern._run.stopping import until_told
from tern._waits import lock, pause, read_to_end


def ended_by(work):
    """The number of the signal."""
    return asyncio.run(until_told(work)) - 128


def test_a_second_signal_ends_what_takes_its_time():
    async def work(stop):
        with stop.in_own_way():
            os.kill(os.getpid(), signal.SIGTERM)
            assert await stop.signal == -signal.SIGTERM
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    assert ended_by(work) == signal.SIGTERM


def test_a_signal_after_the_work_that_ends_in_its_own_way_cancels():
    async def work(stop):
        with stop.in_own_way():
            pass
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        return await asyncio.Event().wait()

    assert ended_by(work) == signal.SIGTERM


def waits(thread_id):
    return "State:\tS" in pathlib.Path(f"/proc/self/task/{thread_id}/status").read_text()


@pytest.mark.parametrize("where", ["select", "_wait"])
def test_a_signal_that_another_thread_gets_ends_the_wait(where):
    """The loop's wait, and that of a step."""
    main, main_id = threading.get_ident(), threading.get_native_id()

    def get():
        # Without the interpreter's lock, the main thread can only be in its wait there.
        while sys._current_frames()[main].f_code.co_name != where or not waits(main_id):
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    async def work(stop):
        threading.Thread(target=get).start()
        return await asyncio.Event().wait() if where == "select" else pause(1e6)

    assert ended_by(work) == signal.SIGTERM


def read_what_nobody_writes():
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as pipe, open(writer, "wb"):
        read_to_end(pipe)


def lock_what_another_holds():
    with tempfile.NamedTemporaryFile() as file, open(file.name, "wb") as again:
        fcntl.flock(file, fcntl.LOCK_EX)
        lock(again)


@pytest.mark.parametrize("wait", [lambda: pause(1e6), read_what_nobody_writes,
                                  lock_what_another_holds])
def test_a_wait_does_not_begin_when_a_signal_has_come(wait):
    async def work(stop):
        signal.raise_signal(signal.SIGHUP)
        wait()

    assert ended_by(work) == signal.SIGHUP


def test_what_is_waited_for_comes_without_a_signal():
    async def work(stop):
        reader, writer = os.pipe()
        with open(reader, "rb", buffering=0) as pipe, open(writer, "wb") as told:
            told.write(bytes(10_000))
            told.close()
            assert read_to_end(pipe) == bytes(10_000)
        with tempfile.TemporaryFile() as file:
            lock(file)
        pause(0)
        return 7

    assert asyncio.run(until_told(work)) == 7


def test_signals_have_their_handlers_again_afterwards():
    async def work(stop):
        return 0

    def handler(*_):
        pass

    before = signal.signal(signal.SIGHUP, handler)
    try:
        assert asyncio.run(until_told(work)) == 0
        assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)
