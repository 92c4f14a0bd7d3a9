"""Groups come, go and come again; what is wrong with a call or a rank is said by name."""

import contextlib
import copy
import datetime
import multiprocessing
import os
import signal
import threading

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tern
import tern.torch
from cluster import daemons
from ranks import RankFailed, answer_of, run_ranks, start_ranks
from tern.torch import grouping, meeting
from tern.torch.backend import has_python_backends

fork = multiprocessing.get_context("fork")


def test_new_groups_of_some_ranks(two_nodes):
    def work(rank):
        pair = dist.new_group([0, 2])
        others = dist.new_group([1, 2])
        x = torch.ones(1) * (rank + 1)
        if rank in (0, 2):
            dist.all_reduce(x, group=pair)
            assert x == 4
            dist.broadcast(x, 2, group=pair)
        if rank in (1, 2):
            dist.all_reduce(torch.ones(1), group=others)
        dist.barrier()
        if rank != 1:
            dist.destroy_process_group(pair)
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x == 3

    run_ranks(two_nodes, 3, work)


@pytest.mark.skipif(torch.__version__ < "2.15",
                    reason="PyTorch before 2.15 splits no group without an accelerator")
def test_a_group_is_split(two_nodes):
    def work(rank):
        child = dist.split_group(split_ranks=[[0, 2], [1]])
        x = torch.ones(1) * (rank + 1)
        dist.all_reduce(x, group=child)
        assert x == (2 if rank == 1 else 4)
        assert dist.get_world_size(child) == (1 if rank == 1 else 2)

    run_ranks(two_nodes, 3, work)


def test_two_groups_without_a_name_come_of_one_split(two_nodes):
    def work(rank):
        group = dist.distributed_c10d._get_default_group()
        x = torch.ones(1) * (rank + 1)
        for pair in ([0, 1], [2, 3]):
            child = group.split_group(pair)
            assert (child is None) == (rank not in pair)
            if child is not None:
                child.allreduce([x]).wait()
                names = child.getGroupName()
        assert x == (3 if rank < 2 else 7)
        return names

    names = run_ranks(two_nodes, 4, work)
    assert names[0] == names[1] != names[2] == names[3]


def test_a_group_ends_and_begins_again_with_the_same_store(two_nodes):
    def work(rank):
        store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
        for _ in range(5):
            dist.destroy_process_group()
            dist.init_process_group("tern", store=store, rank=rank, world_size=3)
            x = torch.ones(2)
            dist.all_reduce(x)
            assert torch.equal(x, torch.full((2,), 3.0))

    run_ranks(two_nodes, 3, work)


def test_a_group_begins_again_when_its_daemons_have():
    """In processes in which something still refers to the group of before: a model of DDP."""
    stepped, restarted = fork.Barrier(3, timeout=60), fork.Event()

    def work(rank):
        store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
        try:
            model = DistributedDataParallel(torch.nn.Linear(3, 3))
            model(torch.ones(1, 3)).sum().backward()
        except BaseException:
            stepped.abort()
            raise
        stepped.wait()
        restarted.wait()
        dist.destroy_process_group()
        dist.init_process_group("tern", store=store, rank=rank, world_size=2)
        x = torch.ones(2)
        dist.all_reduce(x)
        assert torch.equal(x, torch.full((2,), 2.0))
        assert model.process_group is not dist.group.WORLD

    with daemons(2) as nodes:
        ranks = start_ranks(nodes, 2, work)
        try:
            # Where a rank has failed, its answer says why.
            with contextlib.suppress(threading.BrokenBarrierError):
                stepped.wait()
            for node in nodes:
                node.kill()
                node.start()
        finally:
            restarted.set()
        for rank in ranks:
            answer_of(*rank)


@pytest.mark.parametrize("backend", ["tern", "gloo"])
def test_a_new_group_takes_one_id_of_each_rank(two_nodes, backend):
    """The first rank's is the group's; another's is the answer of its daemon that it is there."""
    def work(rank):
        client = meeting.shared_client()
        mint, minted = client.mint, []
        client.mint = lambda: minted.append(mint()) or minted[-1]
        grouping.submissions_of(dist.new_group(backend=backend))
        assert len(minted) == 1

    run_ranks(two_nodes, 2, work)


def test_a_monitored_barrier_is_one_again_with_the_same_store(two_nodes):
    """Nobody takes what was said to the group before for an answer."""
    def work(rank):
        limit = datetime.timedelta(milliseconds=300)
        store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())

        def begin_again():
            dist.destroy_process_group()
            dist.init_process_group("tern", store=store, rank=rank, world_size=2)
            return dist.distributed_c10d._get_default_group()

        begin_again().monitored_barrier()
        group = begin_again()
        if rank == 1:
            with pytest.raises(RuntimeError, match="has not said within 300 ms that all"):
                group.monitored_barrier(limit)
        dist.barrier()
        group = begin_again()
        if rank == 0:
            with pytest.raises(RuntimeError, match="Rank 1 failed to pass"):
                group.monitored_barrier(limit)
        dist.barrier()
        begin_again().monitored_barrier()

    run_ranks(two_nodes, 2, work)


def test_the_store_keeps_no_id_of_a_group(two_nodes):
    """Whoever has an id can join: each rank takes its copy out."""
    def work(rank):
        dist.barrier()
        store = dist.distributed_c10d._get_default_store()
        for prefix in ("", "default_pg/", "0/", "cpu/", "0/cpu/", "default_pg/0/cpu/"):
            assert not store.check([f"{prefix}tern/group_of_rank/1"])

    run_ranks(two_nodes, 2, work)


def test_what_cannot_travel_is_refused_with_what_to_do(two_nodes):
    def work(rank):
        with pytest.raises(ValueError, match="not contiguous: pass tensor.contiguous()"):
            dist.all_reduce(torch.ones(3, 4).t())
        with pytest.raises(ValueError, match="conjugated only when it is read: .*resolve_conj()"):
            dist.distributed_c10d._get_default_group().allreduce(
                [torch.ones(3, dtype=torch.complex64).conj()])
        with pytest.raises(ValueError, match="negated only when it is read: .*resolve_neg()"):
            dist.all_reduce(torch.ones(3, dtype=torch.complex64).conj().imag)
        with pytest.raises(ValueError, match="on meta: Tern takes tensors"):
            dist.all_reduce(torch.ones(3, device="meta"))
        with pytest.raises(TypeError, match="Convert it first"):
            dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fn))
        with pytest.raises(ValueError, match="has 5 elements, and the input of each of 2"):
            dist.all_gather_into_tensor(torch.ones(5), torch.ones(2))
        with pytest.raises(ValueError, match="outputs.1. is of torch.int32"):
            dist.distributed_c10d._get_default_group().allgather(
                [[torch.ones(1), torch.ones(1, dtype=torch.int32)]], [torch.ones(1)])
        needs_grad = torch.ones(2, requires_grad=True)
        dist.all_reduce(needs_grad)
        assert torch.equal(needs_grad.detach(), torch.full((2,), 2.0))

    run_ranks(two_nodes, 2, work)


def _dies_in_backward(rank):
    class Dies(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            os.kill(os.getpid(), signal.SIGKILL)

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(1000, 1000))
    out = model(torch.ones(2, 1000))
    if rank == 1:
        out = Dies.apply(out)
    out.sum().backward()


def test_a_rank_that_dies_in_backward_is_named_on_every_other(two_nodes):
    ranks = start_ranks(two_nodes, 3, _dies_in_backward)
    with pytest.raises(EOFError):
        answer_of(*ranks[1])
    for rank in (0, 2):
        with pytest.raises(RankFailed, match="RankLostError.*rank 1"):
            answer_of(*ranks[rank])


@pytest.mark.parametrize("recipe", [None, "3lc:s=1"])
def test_a_failure_in_the_backward_pass_of_ddp_has_its_class_in_the_text(two_nodes, recipe):
    """And what comes after it raises the class."""
    def work(rank):
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(100, 100))
        if recipe:
            tern.torch.compress(model, recipe=recipe)
        loss = model(torch.ones(2, 100)).sum()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(RuntimeError, match="RankLostError: .*rank 1") as raised:
            loss.backward()
        assert type(raised.value) is RuntimeError
        with pytest.raises(tern.RankLostError, match="rank 1") as raised:
            dist.barrier()
        assert isinstance(raised.value, dist.DistBackendError)
        os._exit(0)

    for rank in start_ranks(two_nodes, 2, work):
        with pytest.raises(EOFError):
            answer_of(*rank)


def test_the_end_of_a_daemon_has_its_class_in_the_text_of_the_backward_pass():
    """One on its own node, another one elsewhere."""
    def work(rank):
        model = DistributedDataParallel(torch.nn.Linear(100, 100))
        loss = model(torch.ones(2, 100)).sum()
        dist.barrier()
        if rank == 1:
            os.kill(nodes[1].process.pid, signal.SIGKILL)
        said = ("PeerLostError", "DaemonLostError")[rank]
        with pytest.raises(RuntimeError, match=f"{said}: "):
            loss.backward()
        dist.destroy_process_group()

    with daemons(2) as nodes:
        run_ranks(nodes, 2, work)


def test_errors_of_a_group_that_does_not_come_about_are_torchs_too(two_nodes):
    def work(rank):
        soon = datetime.timedelta(milliseconds=100)
        with pytest.raises(tern.WaitTimeoutError, match="rank 1") as raised:
            meeting.meet(dist.HashStore(), 0, 2, soon)
        assert isinstance(raised.value, dist.DistBackendError)
        # In a process that ends with the test.
        client = grouping.shared_client()
        grouping.client_and_id = lambda: (client, "no id")
        with pytest.raises(tern.InvalidArgumentError) as raised:
            grouping.submissions_of(dist.new_group(backend="gloo"))
        assert isinstance(raised.value, dist.DistBackendError)

    run_ranks(two_nodes, 1, work)


def test_a_rank_that_does_not_come_is_named(two_nodes):
    def work(rank):
        limit = datetime.timedelta(milliseconds=300)
        group = dist.new_group([0, 1, 2], timeout=limit)
        if rank == 1:
            dist.distributed_c10d._get_default_store().wait(["late"])
        else:
            with pytest.raises(tern.OperationTimeoutError, match="not submitted by rank 1"):
                dist.all_reduce(torch.ones(1), group=group)
        if rank == 0:
            dist.distributed_c10d._get_default_store().set("late", "yes")
        dist.barrier()

    run_ranks(two_nodes, 3, work)


def test_a_first_rank_without_a_daemon_is_no_riddle_to_the_others(two_nodes):
    class Absent:
        folder = two_nodes[0].folder
        socket = f"{two_nodes[0].socket}-absent"

    ranks = start_ranks([Absent, two_nodes[1]], 2, lambda rank: None)
    with pytest.raises(RankFailed, match="DaemonAbsentError"):
        answer_of(*ranks[0])
    with pytest.raises(RankFailed, match="LaunchError: the first rank has no group:.*absent"):
        answer_of(*ranks[1])


@pytest.mark.parametrize("said", ["4GiB", "-1", "1e9"])
def test_an_arena_of_no_number_of_bytes_is_told_by_its_variable(two_nodes, monkeypatch, said):
    monkeypatch.setenv("TERN_ARENA_BYTES", said)
    with pytest.raises(RankFailed, match=f"TERN_ARENA_BYTES='{said}' is no number of bytes"):
        run_ranks(two_nodes[:1], 1, lambda rank: None)


def test_a_monitored_barrier_names_the_missing(two_nodes):
    def work(rank):
        group = dist.distributed_c10d._get_default_group()
        group.monitored_barrier()
        limit = datetime.timedelta(milliseconds=300)
        if rank == 0:
            with pytest.raises(RuntimeError, match="Ranks 1, 2 failed to pass monitoredBarrier"):
                group.monitored_barrier(limit, wait_all_ranks=True)
        dist.barrier()

    run_ranks(two_nodes, 3, work)


def test_a_forked_child_leaves_the_group_alone(two_nodes):
    """As the workers of a DataLoader do."""
    def work(rank):
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        loader = torch.utils.data.DataLoader(range(8), batch_size=2, num_workers=1,
                                             multiprocessing_context="fork")
        assert sum(batch.sum().item() for batch in loader) == 28
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x == 2

    run_ranks(two_nodes, 2, work)


def test_the_tern_group_beneath_is_at_hand(two_nodes):
    def work(rank):
        group = dist.distributed_c10d._get_default_group()
        assert isinstance(group, tern.torch.TernProcessGroup)
        assert dist.get_backend() == "tern"
        return group.tern_group.info().node_count

    assert run_ranks(two_nodes, 2, work) == [2, 2]


@pytest.mark.skipif(not has_python_backends(), reason="PyTorch 2.14 brought backends in Python")
def test_tern_beside_another_backend_for_other_devices(two_nodes):
    """gloo stands for NCCL, which needs a GPU. Tensors on the processor go through Tern."""
    def work(rank):
        group = dist.distributed_c10d._get_default_group()
        ours = group._get_backend(torch.device("cpu"))
        assert isinstance(ours, tern.torch.TernBackend)
        assert "gloo" in str(group._get_backend(torch.device("cuda")).name())
        x = torch.ones(3)
        dist.all_reduce(x)
        assert torch.equal(x, torch.full((3,), 2.0))
        out = torch.empty(2)
        dist.all_gather_into_tensor(out, torch.tensor([float(rank)]))
        assert out.tolist() == [0, 1]
        found = [None, None]
        dist.all_gather_object(found, rank)
        assert found == [0, 1]
        model = DistributedDataParallel(torch.nn.Linear(100, 100))
        compressed = tern.torch.compress(model, recipe="3lc:s=1")
        model(torch.ones(2, 100)).sum().backward()
        assert compressed.ratio() > 4
        with pytest.raises(RuntimeError, match="rank 1"):
            dist.all_reduce(torch.ones(2 + rank))

    run_ranks(two_nodes, 2, work, backend="cpu:tern,cuda:gloo")


@pytest.mark.skipif(not has_python_backends(), reason="PyTorch 2.14 asks backends in Python")
def test_fsdp_takes_its_memory_from_the_arena(two_nodes):
    def work(rank):
        torch.manual_seed(0)
        reference = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        model = copy.deepcopy(reference)
        mesh = init_device_mesh("cpu", (2,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        model.set_allocate_memory_from_process_group_for_comm(True)
        inputs = [torch.randn(4, 64, generator=torch.Generator().manual_seed(r)) for r in (0, 1)]
        model(inputs[rank]).square().sum().backward()
        for x in inputs:
            (reference(x).square().sum() / 2).backward()
        for sharded, whole in zip(model.parameters(), reference.parameters()):
            torch.testing.assert_close(sharded.grad.full_tensor(), whole.grad)

    run_ranks(two_nodes, 2, work)


@pytest.mark.skipif(not has_python_backends(), reason="PyTorch 2.14 asks backends in Python")
def test_the_arena_has_tensors_of_the_processor_alone(two_nodes):
    def work(rank):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert backend.supports_tensor_alloc(torch.device("cpu"))
        assert not backend.supports_tensor_alloc(torch.device("cuda", 0))
        found = backend.allocate_tensor(3, dtype=torch.int64, device=torch.device("cpu"))
        assert found.shape == (3,) and found.dtype == torch.int64
        with pytest.raises(ValueError, match="no tensors of cuda:0"):
            backend.allocate_tensor(3, dtype=torch.int64, device=torch.device("cuda", 0))

    run_ranks(two_nodes, 2, work)
