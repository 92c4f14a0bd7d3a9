"""What compression would bring on this very link: measured, before a training begins."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from ..errors import TernError
from ..tensor import Tensor
from .exemption import Rule, reasons
from .failures import as_torch
from .grouping import submissions_of
from .operands import View, view
from .submissions import Submissions

RECIPES = ("raw", "bf16", "int:bits=8", "int:bits=4", "3lc:s=1")


class Row(NamedTuple):
    """`seconds`: to average all gradients once, on the slowest rank, with nothing else to do.
    `bytes_sent`: of the compressed parameters, by this node, each time."""

    recipe: str
    seconds: float
    bytes_sent: int


class Estimate(NamedTuple):
    """`exact_bytes` and `lossy_bytes`: of the gradients of a step, as they are. `exact`: why each
    of the exact parameters is, by name."""

    rows: tuple[Row, ...]
    exact_bytes: int
    lossy_bytes: int
    exact: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{self.lossy_bytes / 1e6:.1f} MB of gradients may be compressed, "
                 f"{self.exact_bytes / 1e6:.1f} MB stay exact",
                 f"{'recipe':12} {'seconds':>9} {'MB sent':>9}"]
        lines += [f"{row.recipe:12} {row.seconds:9.4f} {row.bytes_sent / 1e6:9.2f}"
                  for row in self.rows]
        return "\n".join(lines)


def estimate(model: DistributedDataParallel, recipes: Sequence[str] = RECIPES,
             exempt: Rule | Sequence[str] | None = None, rounds: int = 5) -> Estimate:
    """Averages made-up gradients of the model's shapes by each recipe, and says how long it took.

    Call it on all ranks, in place of a training's first steps or beside nothing else. The values
    are drawn from a normal distribution: recipes with an entropy coder, and 3LC, send other
    amounts for real gradients. `exempt`: as compress() has it. `rounds`: of which the median
    counts; one more comes first and does not. Costs memory for one more set of gradients and what
    the recipes remember. Raises BadRecipeError.
    """
    submissions = submissions_of(model.process_group)
    why = reasons(model.module, exempt)
    parameters = dict(model.module.named_parameters())
    draw = torch.Generator().manual_seed(submissions.group.rank)
    values = {name: torch.randn(parameters[name].numel(), generator=draw).to(parameters[name].dtype)
              for name, reason in why.items() if not reason}
    exact = [torch.zeros(parameters[name].numel(), dtype=parameters[name].dtype)
             for name, reason in why.items() if reason]
    try:
        rows = tuple(_measure(submissions, recipe, values, exact, rounds) for recipe in recipes)
    except TernError as error:
        raise as_torch(error) from None
    return Estimate(rows, _bytes(exact), _bytes(values.values()),
                    {name: reason for name, reason in why.items() if reason})


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _measure(submissions: Submissions, recipe: str, values: dict[str, torch.Tensor],
             exact: list[torch.Tensor], rounds: int) -> Row:
    group = submissions.group
    tensors = {name: group.declare(f"estimate/{recipe}/{index}", value.numel(),
                                   str(value.dtype).removeprefix("torch."), role="gradient",
                                   recipe=recipe)
               for index, (name, value) in enumerate(values.items())}
    seconds = []
    for _ in range(rounds + 1):
        calls = [_call(submissions, view(value.clone(), name), tensors[name])
                 for name, value in values.items()]
        calls += [_call(submissions, view(part, "an exact gradient"), None) for part in exact]
        submissions.start("barrier", [group.barrier], []).wait()
        began = time.perf_counter()
        submissions.start("all_reduce", calls, []).wait()
        seconds.append(time.perf_counter() - began)
    slowest = torch.tensor([statistics.median(seconds[1:])], dtype=torch.float64)
    seen = view(slowest, "the seconds")
    submissions.start("all_reduce", [lambda: group.all_reduce(
        seen.array, reduction="max")], []).wait()
    sent = sum(tensor.stats().bytes_sent for tensor in tensors.values()) // (rounds + 1)
    for tensor in tensors.values():
        tensor.release()
    return Row(recipe, slowest.item(), sent)


def _call(submissions: Submissions, seen: View, tensor: Tensor | None) -> Any:
    average = "average" if tensor is not None else "sum"
    return lambda: submissions.group.all_reduce(
        seen.array, reduction=average, dtype=seen.dtype, tensor=tensor)
