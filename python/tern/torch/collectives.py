"""The collectives of torch.distributed, in the words of Tern.

Both faces of the backend, the process group and the c10d Backend, have these methods. A method is
called from Python with the arguments of torch.distributed, and from C++ (DDP, functional
collectives) with the same. Where PyTorch 2.14 has renamed one, both names are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..arrays import Array
from ..ticket import Ticket
from . import sparse
from .operands import View, check, view
from .reductions import Reduction, reduction_of
from .staging import sending, through_host
from .submissions import Submissions, scatter_out
from .work import TernWork

# DDP's buckets have 25 MiB, so that the copies of a whole one are long enough to be seen in a step.
_LARGE_BYTES, _PIECES = 8 << 20, 8


def _one(tensors: Any, what: str) -> Any:
    """The single entry of a list that c10d keeps for several devices of one rank."""
    if isinstance(tensors, (list, tuple)):
        if len(tensors) != 1:
            raise ValueError(f"{what} has {len(tensors)} entries; a rank has one")
        return tensors[0]
    return tensors


def _alike(tensors: Sequence[Tensor], dtype: torch.dtype, what: str) -> list[Tensor]:
    for index, tensor in enumerate(tensors):
        if check(tensor, f"{what}[{index}]").dtype != dtype:
            raise ValueError(f"{what}[{index}] is of {tensor.dtype} where others are of {dtype}")
    return list(tensors)


def _timeout(opts: Any) -> timedelta | None:
    limit = getattr(opts, "timeout", None)
    return limit if limit is not None and limit > timedelta(0) else None


def _operation(opts: Any) -> Any:
    return getattr(opts, "reduceOp", dist.ReduceOp.SUM if opts is None else opts)


def _root(opts: Any) -> int:
    root: int = getattr(opts, "rootRank", opts)
    return root


class Collectives:
    """What a backend must have. `_submissions` is that of the group, `_size` its size."""

    _submissions: Submissions
    _size: int

    @through_host
    def allreduce(self, tensors: Any, opts: Any = None) -> TernWork:
        tensor = _one(tensors, "tensors")
        reduction = reduction_of(_operation(opts), tensor.dtype)
        if tensor.layout == torch.sparse_coo:
            return sparse.all_reduce(self._submissions, tensor, reduction)
        calls = [self._reducing("all_reduce", piece, piece, reduction)
                 for piece in _pieces(tensor)]
        return self._start("all_reduce", calls, [tensor], opts)

    @through_host
    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> TernWork:
        calls = [self._reducing("all_reduce", tensor, tensor,
                                reduction_of(_operation(opts), tensor.dtype))
                 for tensor in tensors]
        return self._start("all_reduce", calls, list(tensors), opts)

    def allreduce_sparse(self, tensors: Any, opts: Any = None) -> TernWork:
        return self.allreduce(tensors, opts)

    @through_host
    def broadcast(self, tensors: Any, opts: Any = 0) -> TernWork:
        tensor = _one(tensors, "tensors")
        seen = view(tensor, "the tensor", moved=True)
        return self._start("broadcast", [lambda: self._submissions.group.broadcast(
            seen.array, _root(opts), dtype=seen.dtype)], [tensor], opts)

    @through_host
    def reduce(self, tensors: Any, opts: Any = 0) -> TernWork:
        tensor = _one(tensors, "tensors")
        reduction = reduction_of(getattr(opts, "reduceOp", dist.ReduceOp.SUM), tensor.dtype)
        call = self._reducing("reduce", tensor, tensor, reduction, root=_root(opts))
        return self._start("reduce", [call], [tensor], opts)

    @through_host
    def allgather(self, output_lists: Any, inputs: Any, opts: Any = None) -> TernWork:
        source = check(_one(inputs, "input_tensors"), "the input")
        outputs = output_lists if isinstance(output_lists[0], Tensor) else _one(
            output_lists, "output_tensors")
        self._one_for_each(outputs, "the list of outputs")
        _alike(outputs, source.dtype, "outputs")
        if outputs[self.rank()].numel() != source.numel():
            raise ValueError(f"outputs[{self.rank()}] has {outputs[self.rank()].numel()} elements, "
                             f"and the input {source.numel()}")
        flat = self._submissions.buffer(sum(map(torch.numel, outputs)), source.dtype)
        call = self._gathering(flat, source.contiguous(), _counts(outputs))
        return self._start("all_gather", [call], list(outputs), opts,
                           lambda: scatter_out(flat, outputs), [source])

    @through_host
    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> TernWork:
        self._parts(output, source, "output", "input")
        return self._start("all_gather", [self._gathering(output, source)], [output], opts)

    @through_host
    def all_gather_single_coalesced(self, outputs: Sequence[Tensor], sources: Sequence[Tensor],
                                    opts: Any = None) -> TernWork:
        _same_length(outputs, sources)
        for output, source in zip(outputs, sources):
            self._parts(output, source, "output", "input")
        calls = [self._gathering(*pair) for pair in zip(outputs, sources)]
        return self._start("all_gather", calls, list(outputs), opts)

    @through_host
    def allgather_coalesced(self, output_lists: Sequence[Sequence[Tensor]],
                            sources: Sequence[Tensor], opts: Any = None) -> TernWork:
        self._one_for_each(output_lists, "the list of lists of outputs")
        calls, buffers = [], []
        for source in sources:
            flat = self._submissions.buffer(source.numel() * self._size, source.dtype)
            buffers.append(flat)
            calls.append(self._gathering(flat, check(source, "an input").contiguous()))
        columns = [[outputs[index] for outputs in output_lists] for index in range(len(sources))]

        def finish() -> None:
            for flat, column in zip(buffers, columns):
                scatter_out(flat, column)

        return self._start("all_gather", calls, [t for row in output_lists for t in row], opts,
                           finish, sources)

    @through_host
    def reduce_scatter(self, outputs: Any, input_lists: Any, opts: Any = None) -> TernWork:
        output = check(_one(outputs, "output_tensors"), "the output")
        sources = input_lists if isinstance(input_lists[0], Tensor) else _one(
            input_lists, "input_tensors")
        self._one_for_each(sources, "the list of inputs")
        _alike(sources, output.dtype, "inputs")
        call = self._reducing("reduce_scatter", self._submissions.joined(sources), output,
                              reduction_of(_operation(opts), output.dtype),
                              counts=_counts(sources))
        return self._start("reduce_scatter", [call], [output], opts, inputs=sources)

    @through_host
    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any = None) -> TernWork:
        call = self._scattering_sum(output, source, opts)
        return self._start("reduce_scatter", [call], [output], opts)

    @through_host
    def reduce_scatter_single_coalesced(self, outputs: Sequence[Tensor], sources: Sequence[Tensor],
                                        opts: Any = None) -> TernWork:
        _same_length(outputs, sources)
        calls = [self._scattering_sum(*pair, opts) for pair in zip(outputs, sources)]
        return self._start("reduce_scatter", calls, list(outputs), opts)

    @through_host
    def all_to_all_single(self, output: Tensor, source: Tensor, output_splits: Sequence[int],
                          input_splits: Sequence[int], opts: Any = None) -> TernWork:
        _alike([output], source.dtype, "output")
        sent = self._rows(source, input_splits, "input")
        received = self._rows(output, output_splits, "output")
        if not output_splits and not input_splits:
            sent = received = None
        elif sent is None or received is None:
            sent = sent or [source.numel() // self._size] * self._size
            received = received or [output.numel() // self._size] * self._size
        x, out = view(source, "input", moved=True), view(output, "output", moved=True)
        return self._start("all_to_all", [self._exchange(x, out, sent, received)], [output], opts)

    @through_host
    def alltoall(self, outputs: Sequence[Tensor], sources: Sequence[Tensor],
                 opts: Any = None) -> TernWork:
        self._one_for_each(outputs, "the list of outputs")
        self._one_for_each(sources, "the list of inputs")
        _alike([*outputs, *sources], sources[0].dtype, "tensors")
        flat = self._submissions.buffer(sum(map(torch.numel, outputs)), sources[0].dtype)
        call = self._exchange(view(self._submissions.joined(sources), "inputs", moved=True),
                              view(flat, "outputs", moved=True), _counts(sources), _counts(outputs))
        return self._start("all_to_all", [call], list(outputs), opts,
                           lambda: scatter_out(flat, outputs), sources)

    @through_host
    def gather(self, output_lists: Any, inputs: Any, opts: Any = 0) -> TernWork:
        source = check(_one(inputs, "input_tensors"), "the input").contiguous()
        x, root, group = view(source, "the input", moved=True), _root(opts), self._submissions.group
        if root != self.rank():
            if output_lists and output_lists[0]:
                raise ValueError(f"rank {self.rank()} gives a list of outputs; only the root, rank "
                                 f"{root}, has one")
            return self._start("gather", [lambda: group.gather(x.array, root, dtype=x.dtype)], [],
                               opts, inputs=[source])
        outputs = _one(output_lists, "output_tensors")
        self._one_for_each(outputs, "the list of outputs")
        _alike(outputs, source.dtype, "outputs")
        _alike_shapes(outputs, source)
        flat = self._submissions.buffer(source.numel() * self._size, source.dtype)
        out = view(flat, "outputs", moved=True)
        return self._start("gather", [lambda: group.gather(
            x.array, root, out=out.array, dtype=x.dtype)], list(outputs), opts,
            lambda: scatter_out(flat, outputs), [source])

    def gather_single(self, output: Tensor, source: Tensor, opts: Any = 0) -> TernWork:
        if _root(opts) != self.rank():
            return self.gather([], [source], opts)
        self._parts(output, source, "output", "input")
        parts = list(output.view(-1).split(source.numel())) if source.numel() else \
            [output] * self._size
        return self.gather([parts], [source], opts)

    @through_host
    def scatter(self, outputs: Any, input_lists: Any, opts: Any = 0) -> TernWork:
        output = check(_one(outputs, "output_tensors"), "the output")
        out, root, group = view(output, "the output", moved=True), _root(opts), \
            self._submissions.group
        x, sources = None, []
        if root == self.rank():
            sources = _one(input_lists, "input_tensors")
            self._one_for_each(sources, "the list of inputs")
            _alike(sources, output.dtype, "inputs")
            _alike_shapes(sources, output)
            x = view(self._submissions.joined(sources), "inputs", moved=True).array
        elif input_lists and input_lists[0]:
            raise ValueError(f"rank {self.rank()} gives a list of inputs; only the root, rank "
                             f"{root}, has one")
        return self._start("scatter", [lambda: group.scatter(
            x, root, out=out.array, dtype=out.dtype)], [output], opts, inputs=sources)

    def barrier(self, opts: Any = None) -> TernWork:
        return self._start("barrier", [self._submissions.group.barrier], [], opts)

    @sending
    def send(self, tensors: Any, dst: int, tag: int = 0) -> TernWork:
        tensor = _one(tensors, "tensors")
        x, send = view(tensor, "the tensor", moved=True), self._submissions.method("send")
        return self._start("send", [lambda: send(x.array, dst, tag, dtype=x.dtype)], [tensor], None)

    @through_host
    def recv(self, tensors: Any, src: int, tag: int = 0) -> TernWork:
        return self._receive(tensors, src, tag)

    @through_host
    def recv_anysource(self, tensors: Any, tag: int = 0) -> TernWork:
        return self._receive(tensors, None, tag)

    # The names of before PyTorch 2.14, and of its C++.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
    gather_into_tensor = gather_single
    recvAnysource = recv_anysource

    def rank(self) -> int:
        return self._submissions.group.rank

    def _start(self, name: str, calls: Sequence[Callable[[], Ticket]], result: list[Tensor],
               opts: Any, finish: Callable[[], None] | None = None,
               inputs: Sequence[Tensor] | None = None) -> TernWork:
        return self._submissions.start(name, calls, result, finish=finish, timeout=_timeout(opts),
                                       inputs=inputs)

    def _receive(self, tensors: Any, src: int | None, tag: int) -> TernWork:
        tensor = _one(tensors, "tensors")
        out, receive = view(tensor, "the tensor", moved=True), self._submissions.method("recv")
        name = "recv" if src is not None else "recvAnySource"
        return self._start(name, [lambda: receive(out.array, src, tag, dtype=out.dtype)],
                           [tensor], None)

    def _reducing(self, kind: str, source: Tensor, output: Tensor, reduction: Reduction,
                  **more: Any) -> Callable[[], Ticket]:
        """A call that reduces `source` into `output`, which may be the same."""
        out = view(output, "the tensor")
        x: Array = out.array if source is output else view(source, "the input").array
        if reduction.factor is not None:
            x = view(source.detach() * reduction.factor, "the product with the factor").array
        submit = getattr(self._submissions.group, kind)
        if kind == "reduce" and more["root"] != self.rank():
            return lambda: submit(x, reduction=reduction.name, dtype=out.dtype, **more)
        return lambda: submit(x, out=None if x is out.array else out.array,
                              reduction=reduction.name, dtype=out.dtype, **more)

    def _scattering_sum(self, output: Tensor, source: Tensor, opts: Any) -> Callable[[], Ticket]:
        self._parts(source, output, "input", "output")
        return self._reducing("reduce_scatter", source, output,
                              reduction_of(_operation(opts), output.dtype))

    def _gathering(self, output: Tensor, source: Tensor,
                   counts: list[int] | None = None) -> Callable[[], Ticket]:
        out, x = view(output, "the output", moved=True), view(source, "the input", moved=True)
        scaled = None if counts is None or len(set(counts)) == 1 else [
            count * x.scale for count in counts]
        group = self._submissions.group
        return lambda: group.all_gather(x.array, scaled, out=out.array, dtype=x.dtype)

    def _exchange(self, x: View, out: View, sent: list[int] | None,
                  received: list[int] | None) -> Callable[[], Ticket]:
        group = self._submissions.group
        if sent is None or received is None:
            return lambda: group.all_to_all(x.array, out=out.array, dtype=x.dtype)
        counts, receive_counts = ([n * x.scale for n in each] for each in (sent, received))
        return lambda: group.all_to_all(x.array, out=out.array, counts=counts,
                                        receive_counts=receive_counts, dtype=x.dtype)

    def _rows(self, tensor: Tensor, splits: Sequence[int], what: str) -> list[int] | None:
        """How many elements go to or come from each rank, where `splits` counts rows."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise ValueError(f"the {rows} rows of the {what} cannot be divided equally among "
                                 f"{self._size} ranks; give split sizes")
            return None
        self._one_for_each(splits, f"the list of split sizes of the {what}")
        if sum(splits) != rows:
            raise ValueError(f"the split sizes of the {what} add up to {sum(splits)}, and it has "
                             f"{rows} rows")
        width = tensor.numel() // rows if rows else 0
        return [split * width for split in splits]

    def _parts(self, whole: Tensor, part: Tensor, whole_name: str, part_name: str) -> None:
        _alike([check(whole, whole_name)], check(part, part_name).dtype, whole_name)
        if whole.numel() != part.numel() * self._size:
            raise ValueError(f"the {whole_name} has {whole.numel()} elements, and the {part_name} "
                             f"of each of {self._size} ranks {part.numel()}")

    def _one_for_each(self, entries: Any, what: str) -> None:
        if len(entries) != self._size:
            raise ValueError(f"{what} has {len(entries)} entries for a group of {self._size}")


def _pieces(tensor: Tensor) -> Sequence[Tensor]:
    """A large tensor in pieces that are submitted one after the other: the first is on its way
    while the library copies the second, and is copied back while the last is on its way. They are
    of sizes that tell the whole's, so that ranks with tensors of different sizes hear of it."""
    if not tensor.is_contiguous() or tensor.numel() * tensor.element_size() < _LARGE_BYTES:
        return [tensor]
    return list(tensor.detach().view(-1).split(-(-tensor.numel() // _PIECES)))


def _counts(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor.numel() for tensor in tensors]


def _alike_shapes(tensors: Sequence[Tensor], wanted: Tensor) -> None:
    for index, tensor in enumerate(tensors):
        if tensor.numel() != wanted.numel():
            raise ValueError(f"entry {index} of the list has {tensor.numel()} elements, and the "
                             f"tensor of this rank {wanted.numel()}")


def _same_length(outputs: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    if len(outputs) != len(sources):
        raise ValueError(f"there are {len(outputs)} outputs for {len(sources)} inputs")
