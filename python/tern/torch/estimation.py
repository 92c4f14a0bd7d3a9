"""What compression would bring on this very link: measured, before a training begins."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..errors import TernError
from ..tensor import Tensor
from .batches import Batches
from .exemption import Rule, averaged_parameters, reasons
from .failures import as_torch
from .grouping import submissions_of
from .operands import view
from .sharded import is_sharded

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

RECIPES = ("raw", "bf16", "int:bits=8", "int:bits=4", "3lc:s=1")
# FSDP2 gathers a module's weights before its forward pass, and again before its backward pass.
_GATHERS = 2
_NOT_GIVEN = float("-inf")


class Row(NamedTuple):
    """`seconds`: to average all gradients once, on the slowest rank, with nothing else to do; of a
    model of fully_shard(), to gather all weights twice besides, exactly. `bytes_sent`: of the
    compressed gradients, by this node, each time. `step_seconds`: the slowest rank's computation
    and `seconds`, one after the other; None if estimate() was not told how long it computes."""

    recipe: str
    seconds: float
    bytes_sent: int
    step_seconds: float | None = None


class Estimate(NamedTuple):
    """`exact_bytes` and `lossy_bytes`: of the gradients of a step, as they are. `exact`: why each
    of the exact parameters is, by name."""

    rows: tuple[Row, ...]
    exact_bytes: int
    lossy_bytes: int
    exact: dict[str, str]

    def __str__(self) -> str:
        kept = sorted(Counter(self.exact.values()).items())
        with_step = any(row.step_seconds is not None for row in self.rows)
        lines = [f"{self.lossy_bytes / 1e6:.1f} MB of gradients may be compressed, "
                 f"{self.exact_bytes / 1e6:.1f} MB stay exact: "
                 + (", ".join(f"{count} {reason}" for reason, count in kept) or "none"),
                 f"{'recipe':12} {'seconds':>9} {'MB sent':>9}" + with_step * f" {'step, s':>9}"]
        lines += [f"{row.recipe:12} {row.seconds:9.4f} {row.bytes_sent / 1e6:9.2f}"
                  + ("" if row.step_seconds is None else f" {row.step_seconds:9.4f}")
                  for row in self.rows]
        if with_step:
            lines.append("step: computation, and then all that travels: an upper bound, for a "
                         "training has both at once in part")
        return "\n".join(lines)


def estimate(model: DistributedDataParallel | FSDPModule, recipes: Sequence[str] = RECIPES,
             exempt: Rule | Sequence[str] | None = None, rounds: int = 5, *,
             replicas: dist.ProcessGroup | None = None,
             compute_seconds: float | None = None) -> Estimate:
    """Averages made-up gradients of the model's shapes by each recipe, and says how long it took.

    Call it on all ranks, after DistributedDataParallel() or fully_shard(), in place of a training's
    first steps or beside nothing else. The values are drawn from a normal distribution: recipes
    with an entropy coder, and 3LC, send other amounts for real gradients. `exempt`, `replicas`: as
    compress() has them; between replicas no weights are gathered. `rounds`: of which the median
    counts; one more comes first and does not. `compute_seconds`: what a step takes on this rank
    without any averaging, as in no_sync(); the rows then have a predicted step. It is an upper
    bound: most gradients are averaged while others are still computed, and nothing of that is taken
    off.

    "auto" is not among `recipes` unless named: in its first ten averages the daemon's tuner loses
    next to nothing, and it tries recipes for some tens more, so that few rounds would measure the
    beginning alone. A model of fully_shard() is measured module by module, in the types of its
    parameters. Costs memory for one more set of gradients (of the largest module, where it is
    sharded) and what the recipes remember.

    Raises BadRecipeError, TypeError for another model, ValueError for one that is sharded over
    several dimensions, and for `replicas` of one that is not sharded.
    """
    if rounds < 1 or (compute_seconds is not None and not compute_seconds >= 0):
        raise ValueError(f"rounds={rounds}, compute_seconds={compute_seconds}: give at least one "
                         "round, and a time of 0 or more")
    if replicas is not None and not is_sharded(model):
        raise ValueError("only a model of fully_shard() has replicas=: leave it out")
    if is_sharded(model):
        trial: _Trial = (_ShardedTrial(model, exempt, rounds) if replicas is None
                         else _ReplicatedTrial(model, exempt, rounds, replicas))
    elif isinstance(model, DistributedDataParallel):
        trial = _Trial(model, exempt, rounds)
    else:
        raise TypeError(f"estimate() takes a model of DistributedDataParallel() or fully_shard(), "
                        f"not a {type(model).__name__}: wrap the model first")
    try:
        before = trial.gather()
        measured = [trial.average(recipe) for recipe in recipes]
        own = [before + seconds for seconds, _ in measured]
        *slowest, computes = trial.slowest(
            [*own, _NOT_GIVEN if compute_seconds is None else compute_seconds])
    except TernError as error:
        raise as_torch(error) from None
    rows = tuple(Row(recipe, seconds, sent, None if computes == _NOT_GIVEN else computes + seconds)
                 for recipe, seconds, (_, sent) in zip(recipes, slowest, measured))
    return Estimate(rows, trial.bytes_of(exact=True), trial.bytes_of(exact=False),
                    {name: reason for name, reason in trial.reasons.items() if reason})


class _Piece(NamedTuple):
    """One gradient, or several that travel as one."""

    elements: int
    dtype: torch.dtype


class _Part(NamedTuple):
    """What is averaged together: a model, or a module of one that is sharded, whose pieces have the
    elements of all ranks. `weights`: what is gathered there."""

    lossy: dict[str, _Piece]
    exact: list[_Piece]
    weights: list[_Piece]


class _Trial:
    """The operations of a model's steps. Thread: that of the training."""

    def __init__(self, model: Any, exempt: Rule | Sequence[str] | None, rounds: int) -> None:
        self._rounds = rounds
        self._parameters = self._found(model)
        self.reasons = {name: reason
                        for name, reason in reasons(self._whole(model), exempt).items()
                        if name in self._parameters}
        self._submissions = submissions_of(self._group_of(model))
        self._group = self._submissions.group
        self._parts = self._cut(model)
        largest = max((piece.elements for part in self._parts for piece in part.lossy.values()),
                      default=0)
        self._noise = torch.randn(
            largest, generator=torch.Generator().manual_seed(self._group.rank))

    def gather(self) -> float:
        """Seconds to gather weights in one step."""
        return 0.0

    def average(self, recipe: str) -> tuple[float, int]:
        """Seconds to average all gradients once, and the bytes that this node sends for it."""
        pieces = [item for part in self._parts for item in part.lossy.items()]
        tensors: dict[str, Tensor] = {}
        try:
            for index, (name, piece) in enumerate(pieces):
                tensors[name] = self._group.declare(
                    f"estimate/{recipe}/{index}", piece.elements,
                    str(piece.dtype).removeprefix("torch."), role="gradient", recipe=recipe)
            seconds = self._median(lambda part, batch: self._add_gradients(batch, part, tensors))
            sent = sum(tensor.stats().bytes_sent for tensor in tensors.values())
        finally:
            for tensor in tensors.values():
                tensor.release()
        return seconds, sent // (self._rounds + 1)

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """The largest on any rank, of each."""
        found = torch.tensor(seconds, dtype=torch.float64)
        array = view(found, "the seconds").array
        self._submissions.start("all_reduce", [
            lambda: self._group.all_reduce(array, reduction="max")], []).wait()
        each: list[float] = found.tolist()
        return each

    def bytes_of(self, *, exact: bool) -> int:
        return sum(self._parameters[name].numel() * self._parameters[name].element_size()
                   for name, reason in self.reasons.items() if bool(reason) == exact)

    def _whole(self, model: Any) -> Any:
        return model.module

    def _found(self, model: Any) -> dict[str, Any]:
        return averaged_parameters(model)

    def _group_of(self, model: Any) -> Any:
        return model.process_group

    def _cut(self, model: Any) -> list[_Part]:
        return [self._part({name: _Piece(self._parameters[name].numel(),
                                         self._parameters[name].dtype) for name in self.reasons})]

    def _part(self, pieces: dict[str, _Piece]) -> _Part:
        """What is not trained has no reason, and is gathered alone."""
        why = {name: self.reasons.get(name) for name in pieces}
        return _Part({name: piece for name, piece in pieces.items() if why[name] == ""},
                     _joined(piece for name, piece in pieces.items() if why[name]),
                     _joined(pieces.values()))

    def _add(self, batch: Batches, piece: _Piece, tensor: Tensor | None) -> None:
        gradient = self._filled(torch.empty(piece.elements, dtype=piece.dtype), tensor)
        seen = view(gradient, "a gradient")
        batch.add("all_reduce", seen.array, reduction="average", dtype=seen.dtype, tensor=tensor)

    def _filled(self, memory: torch.Tensor, tensor: Tensor | None) -> torch.Tensor:
        return memory.zero_() if tensor is None else memory.copy_(self._noise[:memory.numel()])

    def _add_gradients(self, batch: Batches, part: _Part, tensors: dict[str, Tensor]) -> None:
        for name, piece in part.lossy.items():
            self._add(batch, piece, tensors[name])
        for piece in part.exact:
            self._add(batch, piece, None)

    def _median(self, add: Callable[[_Part, Batches], None]) -> float:
        """Of the rounds but for the first: how long what is added for all parts takes."""
        rounds = []
        for _ in range(self._rounds + 1):
            seconds = 0.0
            for part in self._parts:
                batch = Batches(self._group)
                add(part, batch)
                self._submissions.start("barrier", [self._group.barrier], []).wait()
                began = time.perf_counter()
                self._submissions.start("estimate", batch.calls(), []).wait()
                seconds += time.perf_counter() - began
            rounds.append(seconds)
        return statistics.median(rounds[1:])


class _ShardedTrial(_Trial):
    """Of a model of fully_shard(): its memory is in the arena, as under compress()."""

    def gather(self) -> float:
        return _GATHERS * self._median(self._add_weights)

    def _whole(self, model: Any) -> Any:
        return model

    def _found(self, model: Any) -> dict[str, Any]:
        # Slow to import, and already there.
        from torch.distributed.tensor import DTensor
        return {name: parameter for name, parameter in model.named_parameters()
                if isinstance(parameter, DTensor)}

    def _group_of(self, model: Any) -> Any:
        return self._mesh().get_group()

    def _mesh(self) -> Any:
        """Over which the model is sharded."""
        meshes = {parameter.device_mesh for parameter in self._parameters.values()}
        if len(meshes) != 1 or any(mesh.ndim != 1 for mesh in meshes):
            raise ValueError("estimate() takes a model that fully_shard() shards over one mesh of "
                             f"one dimension, not over {', '.join(sorted(map(str, meshes)))}: "
                             "estimate the model on a mesh of the ranks that share weights")
        return meshes.pop()

    def _cut(self, model: Any) -> list[_Part]:
        modules = [name for name, module in model.named_modules() if is_sharded(module)]
        parts: dict[str, dict[str, _Piece]] = {name: {} for name in modules}
        for name, parameter in self._parameters.items():
            owner = max((module for module in modules
                         if not module or name.startswith(f"{module}.")), key=len)
            parts[owner][name] = _Piece(self._elements(parameter), parameter.dtype)
        return [self._part(pieces) for pieces in parts.values() if pieces]

    def _elements(self, parameter: Any) -> int:
        return self._group.size * _share(parameter)

    def _add(self, batch: Batches, piece: _Piece, tensor: Tensor | None) -> None:
        source = self._filled(self._submissions.buffer(*piece), tensor)
        share = torch.empty(piece.elements // self._group.size, dtype=piece.dtype)
        x, out = view(source, "a gradient"), view(share, "its shard")
        batch.add("reduce_scatter", x.array, out=out.array, reduction="average", dtype=x.dtype,
                  tensor=tensor)

    def _add_weights(self, part: _Part, batch: Batches) -> None:
        for piece in part.weights:
            share = torch.zeros(piece.elements // self._group.size, dtype=piece.dtype)
            x = view(share, "a shard", moved=True)
            out = view(self._submissions.buffer(*piece), "the weights", moved=True)
            batch.add("all_gather", x.array, out=out.array, dtype=x.dtype)


class _ReplicatedTrial(_ShardedTrial):
    """Of a model of fully_shard() whose shards are averaged with those of its replicas."""

    def __init__(self, model: Any, exempt: Rule | Sequence[str] | None, rounds: int,
                 replicas: dist.ProcessGroup) -> None:
        self._replicas = replicas
        super().__init__(model, exempt, rounds)

    def gather(self) -> float:
        return 0.0

    def _group_of(self, model: Any) -> Any:
        self._mesh()
        return self._replicas

    def _elements(self, parameter: Any) -> int:
        return _share(parameter)

    def _add(self, batch: Batches, piece: _Piece, tensor: Tensor | None) -> None:
        _Trial._add(self, batch, piece, tensor)


def _joined(pieces: Iterable[_Piece]) -> list[_Piece]:
    """One of each type."""
    counts: Counter[torch.dtype] = Counter()
    for piece in pieces:
        counts[piece.dtype] += piece.elements
    return [_Piece(count, dtype) for dtype, count in counts.items()]


def _share(parameter: Any) -> int:
    """Elements of each rank's part, padded as FSDP2 does."""
    along = parameter.placements[0].dim
    ranks = parameter.device_mesh.size()
    size: int = -(-parameter.shape[along] // ranks) * (parameter.numel() // parameter.shape[along])
    return size
