"""A parameter server on the ranks: the optimizer runs where a part of the model is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..errors import TernError
from ..push_pull import PushPull
from .exemption import Rule, reasons
from .failures import as_torch
from .grouping import submissions_of
from .operands import view
from .submissions import Submissions, scatter_out

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class ParameterServer:
    """Trains a model whose parts are kept by ranks, the owners: gradients are pushed to them, they
    run the optimizer, and all ranks pull how far the parts have moved.

        server = tern.torch.ParameterServer(
            model, lambda parts: torch.optim.SGD(parts, lr=0.1, momentum=0.9),
            push_recipe="3lc:s=1", pull_recipe="3lc:s=1.5")
        for x, y in batches:
            server.zero_grad()
            loss_of(model(x), y).backward()
            server.step()

    Make it on all ranks, with the model as it is: without DistributedDataParallel. All parameters
    that are trained must be f32 in the processor's memory. Their values become those of rank 0, and
    their memory a part of one vector. After each step all ranks have the same bits.

    `optimizer`: makes one for a list of parameters: slices of the model, without its shapes. It
    must treat each element by itself, as SGD and Adam do. `optimizer.param_groups` of `.optimizer`
    is for schedulers, which all ranks step. `server`: the rank that keeps all; None: each rank
    keeps a part. `push_recipe`, `pull_recipe`: of gradients and differences; None: they travel
    exactly, and what `exempt` says always does (see compress()). `process_group`: None: all ranks.
    `name`: of the model among those of the job.

    Raises TypeError for other types of parameters, BadRecipeError, AlreadyExistsError. Thread: that
    of the training.
    """

    def __init__(self, model: nn.Module, optimizer: MakeOptimizer, *, server: int | None = None,
                 push_recipe: str | None = None, pull_recipe: str | None = None,
                 exempt: Rule | Sequence[str] | None = None, process_group: Any = None,
                 name: str = "server") -> None:
        why = reasons(model, exempt)
        trained = {own: each for own, each in model.named_parameters() if each.requires_grad}
        for own, parameter in trained.items():
            if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
                raise TypeError(f"{own} is of {parameter.dtype} on {parameter.device}: a parameter "
                                "server keeps f32 in the processor's memory")
        submissions = submissions_of(dist.group.WORLD if process_group is None else process_group)
        self._submissions = submissions
        self._has_stepped = False
        # What recipes owe is of this very model: none of an earlier run's that a daemon has kept.
        among = f"{name}@{submissions.group._uid}"
        recipes = {"large": (push_recipe or "raw", pull_recipe or "raw"), "small": ("raw", "raw")}
        self._vectors: list[_Vector] = []
        try:
            for kind, (push, pull) in recipes.items():
                own_kind = [each for own, each in trained.items()
                            if bool(why[own]) == (kind == "small")]
                if own_kind:
                    count = sum(map(torch.numel, own_kind))
                    served = submissions.group.push_pull(
                        f"{among}/{kind}", count, server=server, push_recipe=push, pull_recipe=pull)
                    self._vectors.append(_Vector(submissions, own_kind, served))
        except TernError as error:
            raise as_torch(error) from None
        self.optimizer = optimizer([vector.kept for vector in self._vectors])

    def zero_grad(self) -> None:
        for vector in self._vectors:
            for parameter in vector.parameters:
                parameter.grad = None

    def step(self) -> None:
        """Averages the gradients, lets the owners step, and brings all copies of the model up to
        date. All ranks call it. A parameter without a gradient counts with zeros. Raises
        RankLostError and the other errors of an operation."""
        self._has_stepped = True
        self._all("push", [vector.push() for vector in self._vectors])
        before = [vector.kept.detach().clone() for vector in self._vectors]
        self.optimizer.step()
        self._all("pull", [vector.pull(old) for vector, old in zip(self._vectors, before)])
        with torch.no_grad():
            for vector in self._vectors:
                vector.copy += vector.moved

    def ratio(self) -> float:
        """How many times fewer bytes than raw this node has sent for what may lose values; 1 before
        the first step, and on one node alone."""
        served = self._vectors[0].served
        stats = served.push_tensor.stats(), served.pull_tensor.stats()
        sent = sum(each.bytes_sent for each in stats)
        return sum(each.bytes_raw for each in stats) / sent if sent else 1.0

    def state_dict(self) -> dict[str, Any]:
        """This rank's part: of the model and of the optimizer's state. What the recipes owe is not
        in it."""
        return {"kept": [vector.kept.detach().clone() for vector in self._vectors],
                "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues with this rank's own part, on as many ranks as then, with nothing owed. All
        ranks call it, before the first step: what the recipes owe after one is of another model.
        Raises RuntimeError after the first step, ValueError for a part of another size."""
        if self._has_stepped:
            raise RuntimeError("load the state before the first step")
        if [len(kept) for kept in state["kept"]] != [len(each.kept) for each in self._vectors]:
            raise ValueError("the state is of another part of the model: load each rank's own, on "
                             "as many ranks as then")
        with torch.no_grad():
            for vector, kept in zip(self._vectors, state["kept"]):
                vector.kept.copy_(kept)
        self._all("all_gather", [vector.gather() for vector in self._vectors])
        self.optimizer.load_state_dict(state["optimizer"])

    def _all(self, name: str, calls: list[Callable[[], Any]]) -> None:
        self._submissions.start(name, calls, []).wait()


class _Vector:
    """Some parameters of the model, one after the other. `copy`: this rank's, of which the
    parameters are views. `kept`: the part that this rank owns, exact, perhaps empty."""

    def __init__(self, submissions: Submissions, parameters: list[nn.Parameter],
                 served: PushPull) -> None:
        count = sum(map(torch.numel, parameters))
        self.parameters, self.served = parameters, served
        self._group = submissions.group
        self.copy, self.moved, self._gradient = (
            submissions.buffer(count, torch.float32) for _ in range(3))
        scatter_out(self.copy, [each.detach() for each in parameters], into_buffer=True)
        seen = view(self.copy, "the model")
        submissions.start("broadcast", [lambda: self._group.broadcast(seen.array)], []).wait()
        for parameter, part in zip(parameters, self.copy.split([*map(torch.numel, parameters)])):
            parameter.data = part.view(parameter.shape)
        self.kept = nn.Parameter(self.copy[served.shard].clone())
        self._kept_gradient = submissions.buffer(len(self.kept), torch.float32)

    def push(self) -> Callable[[], Any]:
        for parameter, part in zip(self.parameters,
                                   self._gradient.split([*map(torch.numel, self.parameters)])):
            if parameter.grad is None:
                part.zero_()
            else:
                part.copy_(parameter.grad.reshape(-1))
        # The optimizer's own zero_grad() takes it away.
        self.kept.grad = self._kept_gradient
        x, out = view(self._gradient, "the gradients"), view(self._kept_gradient, "the average")
        return lambda: self.served.push(x.array, out=out.array)

    def pull(self, before: torch.Tensor) -> Callable[[], Any]:
        x, out = view(self.kept.detach() - before, "the difference"), view(self.moved, "what moved")
        return lambda: self.served.pull(x.array, out=out.array)

    def gather(self) -> Callable[[], Any]:
        x, out = view(self.kept.detach().clone(), "the part"), view(self.copy, "the model")
        return lambda: self._group.all_gather(x.array, self.served.counts, out=out.array)
