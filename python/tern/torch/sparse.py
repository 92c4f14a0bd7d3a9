"""All-reduce of sparse tensors: indices and values travel by all_gather, and each rank adds."""

from __future__ import annotations

import torch

from .operands import view
from .reductions import Reduction
from .submissions import Submissions
from .work import TernWork


def all_reduce(submissions: Submissions, tensor: torch.Tensor, reduction: Reduction) -> TernWork:
    """Sums sparse tensors of the same shape on all ranks, and returns when that has been done: how
    much comes is known only when all ranks have said it."""
    if reduction.name != "sum" or reduction.factor is not None:
        raise ValueError(f"sparse tensors can be reduced by SUM, not by {reduction.name}")
    own = tensor.detach().coalesce()
    indices, values = own.indices().t().contiguous(), own.values().contiguous()
    facts = torch.tensor([own._nnz(), own.sparse_dim(), own.dense_dim()])
    every = _gather(submissions, facts, [3] * submissions.group.size).view(-1, 3)
    if (every[:, 1:] != facts[1:]).any():
        raise ValueError("the ranks' sparse tensors differ in their sparse and dense dimensions: "
                         f"{every[:, 1:].tolist()}")
    sizes = torch.tensor(own.shape)
    shapes = _gather(submissions, sizes, [own.dim()] * submissions.group.size).view(-1, own.dim())
    if (shapes != sizes).any():
        raise ValueError(f"the ranks' sparse tensors differ in their shapes: {shapes.tolist()}")
    counts = every[:, 0].tolist()
    width = values[0].numel() if len(values) else values.shape[1:].numel()
    all_indices = _gather(submissions, indices, [n * own.sparse_dim() for n in counts])
    all_values = _gather(submissions, values, [n * width for n in counts])
    total = torch.sparse_coo_tensor(
        all_indices.view(-1, own.sparse_dim()).t(), all_values.view(-1, *values.shape[1:]),
        own.shape).coalesce()
    with torch.no_grad():
        tensor.copy_(total)
    return submissions.start("all_reduce", [], [tensor])


def _gather(submissions: Submissions, x: torch.Tensor, counts: list[int]) -> torch.Tensor:
    out = submissions.buffer(sum(counts), x.dtype)
    source, target = view(x, "a part of the sparse tensor"), view(out, "the sparse tensors")
    submissions.start("all_gather", [lambda: submissions.group.all_gather(
        source.array, counts, out=target.array, dtype=source.dtype)], [out]).wait()
    return out
