"""Ranks of torch.distributed as forked processes, on the daemons of a test."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import pickle
import tempfile
import traceback
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.tensor

# A fork shares what is imported. What DDP and others import when they are first used takes seconds,
# and so it is imported above.
_fork = multiprocessing.get_context("fork")


class RankFailed(AssertionError):
    """A rank has raised; the text has its traceback."""


def _run(answer, rank, size, socket, init, work, options):
    os.environ["TERN_SOCKET"] = socket
    torch.set_num_threads(1)
    try:
        backend = options.pop("backend", "tern")
        dist.init_process_group(backend, init_method=init, rank=rank, world_size=size, **options)
        result = work(rank)
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
        answer.send_bytes(pickle.dumps((result, None)))
    except BaseException:
        answer.send_bytes(pickle.dumps((None, traceback.format_exc())))
    finally:
        answer.close()
        os._exit(0)


def start_ranks(nodes, size, work, **options):
    """Starts work(rank) in `size` processes, rank r at the daemon r mod len(nodes), with a process
    group of the backend "tern". Their processes, and where their answers come, by rank."""
    options.setdefault("timeout", datetime.timedelta(seconds=60))
    folder = tempfile.mkdtemp(prefix="ranks-", dir=nodes[0].folder)
    started = []
    for rank in range(size):
        receiver, sender = _fork.Pipe(duplex=False)
        process = _fork.Process(target=_run, args=(
            sender, rank, size, nodes[rank % len(nodes)].socket, f"file://{folder}/store", work,
            dict(options)))
        process.start()
        sender.close()
        started.append((process, receiver))
    return started


def answer_of(process, receiver) -> Any:
    """What the rank's work has returned. Raises RankFailed with the rank's traceback, or EOFError
    if the rank was killed."""
    try:
        result, failure = pickle.loads(receiver.recv_bytes())
    finally:
        process.join()
    if failure is not None:
        raise RankFailed(failure)
    return result


def run_ranks(nodes, size, work, **options) -> list[Any]:
    """What work(rank) has returned on each rank. When all have ended, a failure is raised: the
    first that is not the loss of another rank."""
    results, failures = [], []
    for process, receiver in start_ranks(nodes, size, work, **options):
        try:
            results.append(answer_of(process, receiver))
        except (RankFailed, EOFError) as failure:
            failures.append(failure)
    if failures:
        raise min(failures, key=lambda failure: "RankLostError" in str(failure))
    return results
