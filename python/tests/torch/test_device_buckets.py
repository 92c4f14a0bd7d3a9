"""Gradients that are encoded where they are: the hook by tern.cuda, on the emulated driver, whose
device addresses are those of CPU tensors."""

import contextlib
import os
import threading
import types

import pytest
import torch
import torch.distributed as dist
from emulated import add_memory, driver
from emulated import device as emulated_device
from test_compression import model_of, same, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tern
import tern.torch
from ranks import RankFailed, answer_of, run_ranks, start_ranks
from tern.cuda import BoundTensor, Device
from tern.torch import on_device, shard_averages
from tern.torch.device_buckets import DeviceBuckets

RECIPE = "int:bits=8"


@pytest.fixture(scope="module", autouse=True)
def emulated():
    """A rank that skips by itself would fail the other."""
    driver()


class NoStreams:
    """What CPU tensors have in place of PyTorch's streams: all is done at once."""

    def current(self):
        return 1_000_001

    @contextlib.contextmanager
    def own(self):
        yield


def on_emulated_gpu():
    """From now on, in this process, gradients count as those of a GPU."""
    real = BoundTensor.all_reduce  # of a process that ends with the test

    def all_reduce(self, source, *arguments, **options):
        add_memory(source, 4 * self.count)
        return real(self, source, *arguments, **options)

    BoundTensor.all_reduce = all_reduce
    on_device.open_device = lambda group, place: emulated_device(group.client, operations=8)
    on_device.is_gpu = lambda place: True
    on_device.streams_of = lambda place: NoStreams()


class Odd(nn.Module):
    """Layers after which gradients begin anywhere in a bucket."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 33), nn.Tanh(), nn.Linear(33, 77), nn.Tanh(),
                                    nn.Linear(77, 10))

    def forward(self, x):
        return self.layers(x)


def trained(nodes, gpus, steps=4, recipe=RECIPE, buckets_mb=0.02, kind=None, **options):
    """The gradients of each rank; those of `gpus` have them on a GPU."""
    def work(rank):
        if rank in gpus:
            on_emulated_gpu()
        torch.manual_seed(0)
        model = model_of(buckets_mb) if kind is None else DistributedDataParallel(
            kind(), bucket_cap_mb=buckets_mb)
        compressed = tern.torch.compress(model, recipe=recipe, **options)
        assert isinstance(compressed._buckets, DeviceBuckets) == (len(gpus) == 2)
        found = train(model, rank, steps)
        figures = compressed.device_stats()
        if len(gpus) == 2:
            together = sum(not reason for reason in compressed._reasons.values()) < len(
                compressed._reasons)
            assert figures.operations == (len(compressed.stats()) + together) * steps
            assert figures.failures == 0
            assert figures.device_bytes > 0 and figures.pinned_bytes > 0
        else:
            assert figures is None
        return found

    return run_ranks(nodes, 2, work)


@pytest.mark.parametrize("recipe", ["int:bits=8", "3lc:s=1", "none(bf16)"])
def test_the_bits_are_those_of_the_processor(two_nodes, recipe):
    """In buckets that DDP orders anew, with more operations than the library takes at a time."""
    for found, wanted in zip(trained(two_nodes, {0, 1}, recipe=recipe),
                             trained(two_nodes, set(), recipe=recipe)):
        same(found, wanted)


@pytest.mark.parametrize("exact", [True, False])
def test_gradients_may_begin_anywhere(two_nodes, exact):
    """Where kernels cannot read; with what is exact behind them, or nothing."""
    options = {"kind": Odd, "exempt": lambda name, parameter: exact and parameter.dim() == 1}
    for found, wanted in zip(trained(two_nodes, {0, 1}, **options),
                             trained(two_nodes, set(), **options)):
        same(found, wanted)


class Ignoring(Odd):
    """With parameters that DDP leaves alone: a large one, and one that would stay exact."""

    def __init__(self):
        super().__init__()
        ignored = {"layers.2.weight", "layers.4.bias"}
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self, ignored)


def test_parameters_that_ddp_ignores_are_nobodys(two_nodes):
    options = {"kind": Ignoring, "exempt": lambda name, parameter: parameter.dim() == 1}
    for found, wanted in zip(trained(two_nodes, {0, 1}, **options),
                             trained(two_nodes, set(), **options)):
        own = [{name: step.pop(name) for name in ("layers.2.weight", "layers.4.bias")}
               for step in (*found, *wanted)]
        assert len(own) == 8
        same(found, wanted)


def test_more_operations_than_places_and_nothing_exact(two_nodes):
    options = {"buckets_mb": 25, "exempt": lambda name, parameter: False}
    for found, wanted in zip(trained(two_nodes, {0, 1}, **options),
                             trained(two_nodes, set(), **options)):
        same(found, wanted)


def test_a_rank_without_a_gpu_decides_for_all(two_nodes):
    for found, wanted in zip(trained(two_nodes, {0}), trained(two_nodes, set())):
        same(found, wanted)


@pytest.mark.parametrize("kind", [tern.OutOfMemoryError, torch.OutOfMemoryError])
@pytest.mark.parametrize("what", ["open_device", "bind"])
def test_a_gpu_that_fails_is_done_without_on_all_ranks(two_nodes, monkeypatch, what, kind):
    def fail(*_):
        raise kind("no memory here")

    def work(rank):
        on_emulated_gpu()
        if rank == 1:
            monkeypatch.setattr(on_device if what == "open_device" else Device, what, fail)
        model = model_of()
        compressed = tern.torch.compress(model, recipe=RECIPE)
        assert not isinstance(compressed._buckets, DeviceBuckets)
        made, why = on_device.device_buckets(compressed._submissions, compressed._trained,
                                             {"layers.0.weight": RECIPE},
                                             lambda own, count, recipe: compressed._submissions
                                             .group.declare(f"again{own}", count, role="gradient",
                                                            recipe=recipe, client_blocks=True))
        assert made is None
        assert why == "rank 1: no memory here"
        return train(model, rank, 3)

    for found, wanted in zip(run_ranks(two_nodes, 2, work), trained(two_nodes, set(), 3)):
        same(found, wanted)


def test_a_checkpoint_goes_on_with_the_same_bits(two_nodes, tmp_path):
    def first(rank):
        on_emulated_gpu()
        model = model_of()
        compressed = tern.torch.compress(model, recipe=RECIPE)
        train(model, rank, 2)
        torch.save(compressed.state_dict(), tmp_path / f"{rank}.pt")
        return train(model, rank, 2, first=2)

    def second(on_gpu):
        def work(rank):
            if on_gpu:
                on_emulated_gpu()
            model = model_of()
            compressed = tern.torch.compress(model, recipe=RECIPE)
            compressed.load_state_dict(torch.load(tmp_path / f"{rank}.pt"))
            return train(model, rank, 2, first=2)

        return work

    wanted = run_ranks(two_nodes, 2, first)
    for on_gpu in (True, False):
        for found, expected in zip(run_ranks(two_nodes, 2, second(on_gpu)), wanted):
            same(found, expected)


def test_a_rank_that_dies_ends_backward_on_the_other(two_nodes):
    def work(rank):
        on_emulated_gpu()
        model = model_of()
        tern.torch.compress(model, recipe=RECIPE)
        train(model, rank, 1)
        if rank == 1:
            os._exit(1)
        train(model, rank, 1, first=1)

    ranks = start_ranks(two_nodes, 2, work)
    with pytest.raises(RankFailed, match="RankLostError"):
        answer_of(*ranks[0])
    with pytest.raises(EOFError):
        answer_of(*ranks[1])


def test_abort_ends_backward(two_nodes):
    """While an operation waits for another rank."""
    def work(rank):
        on_emulated_gpu()
        model = model_of()
        tern.torch.compress(model, recipe=RECIPE)
        train(model, rank, 2)  # DDP orders its buckets anew after the first
        group = dist.group.WORLD
        if rank == 1:
            with pytest.raises(tern.TernError):
                group.tern_group.barrier().wait()  # until the other rank has left
            os._exit(1)
        submitted, real = threading.Event(), BoundTensor.all_reduce

        def all_reduce(*arguments, **options):
            ticket = real(*arguments, **options)
            submitted.set()
            return ticket

        BoundTensor.all_reduce = all_reduce
        threading.Thread(target=lambda: submitted.wait() and group.abort()).start()
        train(model, rank, 1, first=2)

    ranks = start_ranks(two_nodes, 2, work)
    with pytest.raises(RankFailed, match="OperationCancelledError|ClosedError|GroupLeftError"):
        answer_of(*ranks[0])
    with pytest.raises(EOFError):
        answer_of(*ranks[1])


def test_a_step_that_is_interrupted_completes_its_futures(monkeypatch):
    """Who waits for one would wait for ever."""
    buckets = DeviceBuckets({}, {}, None, device=None, streams=NoStreams(),
                            place=torch.device("cpu"))
    waiting = buckets._step.waiting

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(buckets, "_start_all", interrupted)
    bucket = types.SimpleNamespace(index=lambda: 0, is_last=lambda: True,
                                   buffer=lambda: torch.ones(1))
    with pytest.raises(KeyboardInterrupt):
        buckets.average(bucket, lambda name: 1.0)
    buckets._completing.shutdown()
    (future, _), = waiting
    assert future.done()
    with pytest.raises(RuntimeError, match="the step was interrupted"):
        future.wait()


def test_a_row_that_is_interrupted_is_ended_by_the_next_call():
    class Ticket:
        def __init__(self, *ends):
            self._ends = list(ends)

        def wait(self):
            if (failure := self._ends.pop(0)) is not None:
                raise failure

    row = shard_averages._RunningRow(types.SimpleNamespace(reduction="average", exact=[]),
                                     torch.empty(0), NoStreams())
    copied = types.SimpleNamespace(part=torch.zeros(2), copy=torch.ones(2))
    row.tickets += [Ticket(None), Ticket(KeyboardInterrupt(), None), Ticket(None)]
    row.copied.append(copied)
    row._row.parts = lambda exact: exact
    with pytest.raises(KeyboardInterrupt):
        row.end()
    assert len(row.tickets) == 2 and not copied.part.any()
    for _ in range(2):
        row.end()
    assert not row.tickets and torch.equal(copied.part, torch.ones(2))


def test_auto_loses_nothing_at_a_level_without_loss(two_nodes):
    for found, wanted in zip(trained(two_nodes, {0, 1}, recipe="auto", level="lossless"),
                             trained(two_nodes, set(), recipe="raw")):
        same(found, wanted)


def test_auto_is_the_same_on_all_ranks(two_nodes):
    first, second = trained(two_nodes, {0, 1}, steps=30, recipe="auto", level="aggressive")
    same(first, second)
