"""Every collective of torch.distributed on two daemons, against torch's own arithmetic."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh

import tern
import tern.torch
from ranks import run_ranks

SIZE = 3  # two ranks on one node, one on the other
Op = dist.ReduceOp
TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16,
         torch.int32, torch.int64, torch.uint8]


def values(rank, *shape, dtype=torch.float32, low=1):
    """Small whole numbers, so that every order of addition gives the same."""
    draw = torch.Generator().manual_seed(rank)
    return torch.randint(low, 4, shape, generator=draw).to(dtype)


def every(*shape, **more):
    return [values(rank, *shape, **more) for rank in range(SIZE)]


def equal(found, wanted):
    assert found.dtype == wanted.dtype
    assert torch.equal(found, wanted), f"{found} is not {wanted}"


def fold(function, tensors):
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total = function(total, tensor)
    return total


@pytest.mark.parametrize("op, function", [
    (Op.SUM, torch.add), (Op.PRODUCT, torch.mul), (Op.MIN, torch.minimum),
    (Op.MAX, torch.maximum), (Op.BAND, torch.bitwise_and), (Op.BOR, torch.bitwise_or),
    (Op.BXOR, torch.bitwise_xor)])
def test_all_reduce(two_nodes, op, function):
    bits = op in (Op.BAND, Op.BOR, Op.BXOR)
    types = [dtype for dtype in TYPES if not (bits and dtype.is_floating_point)]

    def work(rank):
        for dtype in types:
            x = values(rank, 7, 11, dtype=dtype)
            dist.all_reduce(x, op)
            equal(x, fold(function, every(7, 11, dtype=dtype)))

    run_ranks(two_nodes, SIZE, work)


def test_all_reduce_of_booleans_and_complex_numbers(two_nodes):
    def work(rank):
        for op, function in ((Op.SUM, torch.logical_or), (Op.MAX, torch.logical_or),
                             (Op.PRODUCT, torch.logical_and), (Op.MIN, torch.logical_and),
                             (Op.BXOR, torch.logical_xor)):
            x = values(rank, 50, low=0) > 1
            dist.all_reduce(x, op)
            equal(x, fold(function, [part > 1 for part in every(50, low=0)]))
        for dtype in (torch.complex64, torch.complex128):
            x = values(rank, 20, dtype=dtype) * (1 + 2j)
            dist.all_reduce(x)
            equal(x, sum(every(20, dtype=dtype)) * (1 + 2j))

    run_ranks(two_nodes, SIZE, work)


def test_a_large_tensor_is_reduced_in_pieces(two_nodes):
    """Of sizes that tell the whole's: ranks that disagree hear of it and do not wait."""
    count = (2 << 20) + 5

    def work(rank):
        x = values(rank, count)
        started = dist.all_reduce(x, async_op=True)
        started.wait()
        assert torch.equal(x, sum(every(count)))
        assert started.result()[0] is x
        y = values(rank, 3, 1 << 20, dtype=torch.int64)
        dist.all_reduce(y, Op.MAX)
        equal(y, fold(torch.maximum, every(3, 1 << 20, dtype=torch.int64)))
        for sizes in ((count, count + 1), (count, 2 * count)):
            with pytest.raises(tern.MismatchError):
                dist.all_reduce(torch.ones(sizes[rank == 1]))

    run_ranks(two_nodes, SIZE, work)


def test_averages_and_factors(two_nodes):
    def work(rank):
        x = values(rank, 9) * SIZE
        dist.all_reduce(x, Op.AVG)
        equal(x, sum(every(9)))
        x = values(rank, 9, dtype=torch.float64)
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.1))
        torch.testing.assert_close(x, sum(every(9, dtype=torch.float64)) * 0.1,
                                   rtol=1e-15, atol=0)
        with pytest.raises(ValueError, match="divide as you need"):
            dist.all_reduce(torch.ones(2, dtype=torch.int32), Op.AVG)
        with pytest.raises(ValueError, match="integers and booleans"):
            dist.all_reduce(torch.ones(2), Op.BAND)

    run_ranks(two_nodes, SIZE, work)


def test_broadcast_and_reduce(two_nodes):
    def work(rank):
        for root in range(SIZE):
            x = values(rank, 3, 5)
            dist.broadcast(x, root)
            equal(x, values(root, 3, 5))
            x = values(rank, 3, 5)
            dist.reduce(x, root)
            equal(x, sum(every(3, 5)) if rank == root else values(rank, 3, 5))

    run_ranks(two_nodes, SIZE, work)


def test_what_is_moved_may_be_of_any_type(two_nodes):
    types = [torch.bool, torch.bfloat16, torch.complex128, torch.uint16, torch.float8_e4m3fn]

    def work(rank):
        for dtype in types:
            x = values(rank, 6).to(dtype)
            dist.broadcast(x, 1)
            equal(x.view(torch.uint8), values(1, 6).to(dtype).view(torch.uint8))
            parts = [torch.empty(6, dtype=dtype) for _ in range(SIZE)]
            dist.all_gather(parts, values(rank, 6).to(dtype))
            for other in range(SIZE):
                equal(parts[other].view(torch.uint8), values(other, 6).to(dtype).view(torch.uint8))

    run_ranks(two_nodes, SIZE, work)


def test_all_gather(two_nodes):
    def work(rank):
        parts = [torch.empty(4, 2) for _ in range(SIZE)]
        # A result may go where it is not contiguous; so may come an input.
        parts[1] = torch.empty(2, 4).t()
        dist.all_gather(parts, values(rank, 2, 4).t())
        for other in range(SIZE):
            equal(parts[other], values(other, 2, 4).t())
        uneven = [torch.empty(2 + other) for other in range(SIZE)]
        dist.all_gather(uneven, values(rank, 2 + rank))
        for other in range(SIZE):
            equal(uneven[other], values(other, 2 + other))
        whole = torch.empty(SIZE * 4)
        dist.all_gather_into_tensor(whole, values(rank, 4))
        equal(whole, torch.cat(every(4)))
        # An input that lies where its result will be.
        whole = torch.zeros(SIZE * 4)
        whole[4 * rank:4 * rank + 4] = values(rank, 4)
        dist.all_gather_into_tensor(whole, whole[4 * rank:4 * rank + 4])
        equal(whole, torch.cat(every(4)))

    run_ranks(two_nodes, SIZE, work)


def test_reduce_scatter(two_nodes):
    def work(rank):
        lengths = [5, 0, 7]
        out = torch.empty(lengths[rank])
        dist.reduce_scatter(out, [values(10 * rank + i, n) for i, n in enumerate(lengths)])
        equal(out, sum(values(10 * other + rank, lengths[rank]) for other in range(SIZE)))
        out = torch.empty(4)
        dist.reduce_scatter_tensor(out, values(rank, 4 * SIZE), Op.MAX)
        wanted = fold(torch.maximum, every(4 * SIZE))
        equal(out, wanted[4 * rank:4 * rank + 4])

    run_ranks(two_nodes, SIZE, work)


def test_all_to_all(two_nodes):
    def work(rank):
        out = torch.empty(SIZE * 2, 3)
        dist.all_to_all_single(out, values(rank, SIZE * 2, 3))
        equal(out, torch.cat([part[2 * rank:2 * rank + 2] for part in every(SIZE * 2, 3)]))
        # Rank r sends r + i rows to rank i.
        sent = [rank + i for i in range(SIZE)]
        out = torch.empty(sum(sent), 2)
        dist.all_to_all_single(out, values(rank, sum(sent), 2), sent, sent)
        wanted = []
        for other in range(SIZE):
            begin = sum(other + i for i in range(rank))
            whole = values(other, sum(other + i for i in range(SIZE)), 2)
            wanted.append(whole[begin:begin + other + rank])
        equal(out, torch.cat(wanted))
        parts = [torch.empty(other + rank) for other in range(SIZE)]
        dist.all_to_all(parts, [values(10 * rank + i, rank + i) for i in range(SIZE)])
        for other in range(SIZE):
            equal(parts[other], values(10 * other + rank, other + rank))
        with pytest.raises(ValueError, match="add up to"):
            dist.distributed_c10d._get_default_group().alltoall_base(
                torch.empty(3), torch.empty(3), [1, 1, 0], [1, 1, 1])

    run_ranks(two_nodes, SIZE, work)


def test_gather_and_scatter(two_nodes):
    def work(rank):
        parts = [torch.empty(4) for _ in range(SIZE)] if rank == 1 else None
        dist.gather(values(rank, 4), parts, dst=1)
        if rank == 1:
            equal(torch.stack(parts), torch.stack(every(4)))
        whole = torch.empty(SIZE * 4) if rank == 0 else torch.empty(0)
        options = dist.GatherOptions()
        options.rootRank = 0
        dist.distributed_c10d._get_default_group().gather_into_tensor(
            whole, values(rank, 4), options).wait()
        if rank == 0:
            equal(whole, torch.cat(every(4)))
        out = torch.empty(2, 3)
        sources = [values(10 + i, 3, 2).t() for i in range(SIZE)] if rank == 2 else None
        dist.scatter(out, sources, src=2)
        equal(out, values(10 + rank, 3, 2).t())

    run_ranks(two_nodes, SIZE, work)


def test_many_at_once(two_nodes):
    """More tensors than there may be operations in flight."""
    def work(rank):
        group = dist.distributed_c10d._get_default_group()
        tensors = [values(rank + i, 1 + i % 5) for i in range(600)]
        group.allreduce_coalesced(tensors).wait()
        for i, tensor in enumerate(tensors):
            equal(tensor, sum(values(other + i, 1 + i % 5) for other in range(SIZE)))
        works = [dist.all_reduce(tensor, Op.MAX, async_op=True) for tensor in tensors]
        for each in works:
            each.wait()
        outs = [torch.empty(SIZE * 2), torch.empty(SIZE, dtype=torch.int32)]
        group.allgather_into_tensor_coalesced(
            outs, [values(rank, 2), values(rank, 1, dtype=torch.int32)]).wait()
        equal(outs[0], torch.cat(every(2)))
        sums = [torch.empty(2), torch.empty(1)]
        group.reduce_scatter_tensor_coalesced(
            sums, [values(rank, SIZE * 2), values(rank, SIZE)], dist.ReduceScatterOptions()).wait()
        equal(sums[0], sum(every(SIZE * 2))[2 * rank:2 * rank + 2])

    run_ranks(two_nodes, SIZE, work)


def test_nothing_at_all(two_nodes):
    def work(rank):
        x = torch.empty(0)
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        dist.all_gather_into_tensor(torch.empty(0), x)
        scalar = torch.tensor(float(rank))
        dist.all_reduce(scalar)
        equal(scalar, torch.tensor(3.0))

    run_ranks(two_nodes, SIZE, work)


def test_sparse_tensors_are_added(two_nodes):
    def sparse(rank):
        dense = torch.zeros(6, 2)
        dense[rank] = rank + 1
        dense[5] = 2
        return dense

    def work(rank):
        x = sparse(rank).to_sparse(1)
        dist.all_reduce(x)
        equal(x.to_dense(), sum(map(sparse, range(SIZE))))
        empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0), (4,))
        dist.all_reduce(empty)
        equal(empty.to_dense(), torch.zeros(4))
        with pytest.raises(ValueError, match="by SUM, not by max"):
            dist.all_reduce(sparse(rank).to_sparse(), Op.MAX)
        with pytest.raises(ValueError, match="differ in their shapes"):
            dist.all_reduce(torch.ones((2, 3) if rank == 0 else (3, 2)).to_sparse())
        with pytest.raises(ValueError, match="sparse and dense dimensions"):
            dist.all_reduce(sparse(rank).to_sparse(1 + rank % 2))

    run_ranks(two_nodes, SIZE, work)


def test_objects(two_nodes):
    def work(rank):
        found = [None] * SIZE
        dist.all_gather_object(found, {"rank": rank, "text": "x" * rank})
        assert [each["rank"] for each in found] == [0, 1, 2]
        told = [rank, "of", rank]
        dist.broadcast_object_list(told, 2)
        assert told == [2, "of", 2]
        got = [None]
        dist.scatter_object_list(got, [10, 11, 12] if rank == 0 else None, 0)
        assert got == [10 + rank]

    run_ranks(two_nodes, SIZE, work)


def test_functional_collectives_and_meshes(two_nodes):
    def work(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
        equal(functional.all_reduce(torch.ones(3) * rank, "sum", (mesh, 1)).wait(),
              torch.ones(3) * (1 if rank < 2 else 5))
        equal(functional.all_gather_tensor(torch.ones(1) * rank, 0, (mesh, 0)).wait(),
              torch.tensor([rank % 2, rank % 2 + 2.0]))
        equal(functional.reduce_scatter_tensor(torch.arange(4.0), "sum", 0, (mesh, 1)).wait(),
              2 * torch.arange(4.0)[2 * (rank % 2):][:2])

    run_ranks(two_nodes, 4, work)


def test_send_and_recv_where_tern_has_them(two_nodes):
    def work(rank):
        if not hasattr(tern.Group, "send"):
            with pytest.raises(tern.UnsupportedError, match="no send"):
                dist.send(torch.ones(2), 1 - rank)
            return
        peer = 1 - rank
        out = torch.empty(5)
        sending = dist.isend(values(rank, 5), peer, tag=3)
        dist.recv(out, peer, tag=3)
        sending.wait()
        equal(out, values(peer, 5))
        if rank == 0:
            dist.send(values(7, 2), 1)
        else:
            assert dist.recv(out[:2]) == 0
            equal(out[:2], values(7, 2))

    run_ranks(two_nodes, 2, work)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2])
def test_a_tensor_can_be_resized_after_an_operation(two_nodes, dtype):
    """FSDP frees its tensors so, and programs receive messages of varying length so."""

    def work(rank):
        tensor = torch.ones(4).to(dtype)
        dist.broadcast(tensor, 0)
        tensor.resize_(16)
        tensor.untyped_storage().resize_(0)
        with pytest.raises(ValueError, match="no memory"):
            dist.broadcast(tensor, 0)
        empty = torch.empty(0, dtype=dtype)
        with torch.device("meta"):
            dist.broadcast(empty, 0)
        empty.resize_(16)

    run_ranks(two_nodes, SIZE, work)
