"""A parameter server on the ranks: gradients are pushed to the owners of a model's shards, and
differences of the model pulled from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tensor import Tensor

if TYPE_CHECKING:
    from .arrays import DTypeLike
    from .group import Group
    from .ticket import Ticket


class PushPull:
    """A model whose contiguous shards have owners among the ranks. `group.push_pull()` makes it.

    A step of all ranks: push() the gradient; owners apply their optimizer to their shards of the
    model and take the difference, new less old; pull() the difference; every rank adds what it gets
    to its copy of the model, owners too. Copies have the same bits on all ranks. An owner's model
    less a copy is what a lossy `pull_recipe` has left out so far, which is sent later.

    `counts`: elements of each rank's shard. `shard`: the slice of the model that is this rank's.
    `push_tensor`, `pull_tensor`: for stats().
    """

    def __init__(self, group: Group, counts: list[int], reduction: str, push_tensor: Tensor,
                 pull_tensor: Tensor) -> None:
        self._group = group
        self._reduction = reduction
        self.counts: tuple[int, ...] = tuple(counts)
        begin = sum(counts[:group.rank])
        self.shard: slice = slice(begin, begin + counts[group.rank])
        self.push_tensor = push_tensor
        self.pull_tensor = pull_tensor

    def push(self, gradient: Any, *, out: Any = None, dtype: DTypeLike | None = None) -> Ticket:
        """This rank's shard of the reduction of all gradients.

        `gradient`: all elements of the model, of type `dtype` where it is raw memory. `out`: for
        the elements of the shard; None: a new array."""
        return self._group.reduce_scatter(gradient, self._given(), out=out, dtype=dtype,
                                          reduction=self._reduction, tensor=self.push_tensor)

    def pull(self, difference: Any, *, out: Any = None, dtype: DTypeLike | None = None) -> Ticket:
        """The differences of all shards.

        `difference`: the elements of this rank's own shard, perhaps none, of type `dtype` where it
        is raw memory. `out`: for all elements of the model; None: a new array."""
        return self._group.all_gather(difference, self._given(), out=out, dtype=dtype,
                                      tensor=self.pull_tensor)

    def release(self) -> None:
        """Ends the declaration of both tensors."""
        self.push_tensor.release()
        self.pull_tensor.release()

    def _given(self) -> tuple[int, ...] | None:
        """As libtern gives them: equal shards need no counts."""
        return None if len(set(self.counts)) == 1 else self.counts


def cut(count: int, ranks: int, server: int | None) -> list[int]:
    """Elements of each rank's shard, as libtern cuts them: the remainder goes to the first ranks,
    an element each."""
    if server is not None:
        if not 0 <= server < ranks:
            raise ValueError(f"server={server} is no rank of a group of {ranks}")
        return [count if rank == server else 0 for rank in range(ranks)]
    each, more = divmod(count, ranks)
    return [each + (rank < more) for rank in range(ranks)]
