"""Ctrl-C while a rank waits for others that do not come."""

import datetime
import os
import signal
import threading

import pytest
import torch
import torch.distributed as dist
from test_compression import WIDTH, model_of
from test_sharded import models

import tern
import tern.torch
from ranks import run_ranks
from tern.torch.submissions import Submissions

LONG = datetime.timedelta(seconds=60)


def interrupt_after(monkeypatch, owner, method, calls, then=lambda: None):
    """The process gets SIGINT when `method` has been called so often, from another thread: the
    calling one may be in the midst of its wait by then."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    real, left, reached = getattr(owner, method), [calls], threading.Event()

    def counted(self, *arguments):
        left[0] -= 1
        if left[0] == 0:
            reached.set()
        return real(self, *arguments)

    def interrupt():
        reached.wait()
        os.kill(os.getpid(), signal.SIGINT)
        then()

    monkeypatch.setattr(owner, method, counted)
    threading.Thread(target=interrupt, daemon=True).start()


def waits():
    dist.all_reduce(torch.ones(4), async_op=True).wait()


def waits_for_a_barrier():
    dist.barrier()


def waits_for_shards():
    model, _ = models(2)
    tern.torch.compress(model, recipe="bf16")
    model(torch.ones(4, WIDTH)).sum().backward()


@pytest.mark.parametrize("step", [waits, waits_for_a_barrier, waits_for_shards])
def test_a_wait_ends_while_the_other_rank_lives(two_nodes, monkeypatch, step):
    def work(rank):
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            # A wait asks again and again.
            interrupt_after(monkeypatch, tern.Ticket, "_ask", 3)
            with pytest.raises(KeyboardInterrupt):
                step()
            store.set("interrupted", "yes")
        store.wait(["interrupted"], LONG)
        dist.destroy_process_group()

    run_ranks(two_nodes, 2, work)


@pytest.mark.parametrize("recipe", [None, "bf16"])
def test_a_step_of_ddp_ends_with_the_other_rank_and_then_is_interrupted(
        two_nodes, monkeypatch, recipe):
    """PyTorch waits for a step's averages in C++, where no signal handler of Python runs. When the
    averages have come, or have failed, it does."""
    def work(rank):
        store = dist.distributed_c10d._get_default_store()
        model = model_of()
        if recipe is not None:
            tern.torch.compress(model, recipe=recipe)
        loss = model(torch.ones(4, WIDTH)).sum()
        if rank == 0:
            interrupt_after(monkeypatch, Submissions, "_keep", 1,
                            then=lambda: store.set("interrupted", "yes"))
            with pytest.raises(KeyboardInterrupt):
                loss.backward()
        else:
            store.wait(["interrupted"], LONG)
        dist.destroy_process_group()

    run_ranks(two_nodes, 2, work)
