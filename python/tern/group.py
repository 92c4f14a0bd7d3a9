"""Groups of ranks and their collectives."""

from __future__ import annotations

import concurrent.futures
import ctypes
import operator
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from . import _passing
from . import _structs as structs
from . import collectives as table
from ._durations import milliseconds
from ._handle import Handle
from ._submit import Call, start, submit
from .batch import Batch
from .errors import ClosedError
from .push_pull import PushPull, cut
from .statistics import GroupStats, Place, of_group
from .tensor import Tensor, declaration
from .ticket import Ticket

if TYPE_CHECKING:
    from .arrays import DTypeLike
    from .client import Client


class Dependent(Protocol):
    """What ends before its group does."""

    def _end_before_group(self) -> None: ...


class GroupInfo(NamedTuple):
    """`node`: index of this node of `node_count`. `epoch`: 1 for the first join, one more for each
    rejoin. `last_common_op`: how many of its first operations every rank had completed when the
    epoch before this one ended."""

    rank: int
    size: int
    node: int
    node_count: int
    epoch: int
    last_common_op: int


class Group:
    """This process's place in a group of ranks. `client.join()` and `tern.init()` make it.

    Every collective is submitted by all ranks and returns a Ticket at once. Its arrays are NumPy
    arrays, DLPack tensors or buffers, contiguous, of floats of 16, 32 or 64 bits, integers of 8 to
    64, booleans, complex numbers or bfloat16. They must not be written, nor the output read, until
    the ticket has ended. Keywords that all share:

    - `out`: where the result goes, contiguous and writable;
    - `dtype`: what the elements are, where the array cannot say it ("bfloat16" for 16-bit
      integers);
    - `tensor`: a Tensor of declare(), by whose recipe the values travel; the arrays have its type
      and, all shares together, its count. Without it an operation is anonymous and exact, and
      matches those of other ranks by order;
    - `priority`: higher goes first;
    - `recipe`: another compressor for this operation, with the memory of the declaration;
    - `prescale`: this rank's input is multiplied by it before it is reduced. Not 0: a rank with
      nothing to add passes zeros.

    Errors of the arguments are raised at once: TypeError, ValueError, WouldBlockError (the
    group has `max_ops_in_flight` operations in flight, 128 unless the daemon says otherwise, or the
    client 512 in flight or unreported: wait for one). Errors of the operation are raised by the
    ticket. Thread: any.
    """

    def __init__(self, client: Client, group_id: str, options: structs.JoinOptions,
                 owns_client: bool = False) -> None:
        self._handle: Handle | None = None
        self._place: list[Handle] = []
        self._dependents: weakref.WeakSet[Dependent] = weakref.WeakSet()
        self.client = client
        self.rank: int = options.rank
        self.size: int = options.size
        # As the daemon's tables have it: tern1:HOST:PORT:UID:SECRET. Of a child they tell it.
        self._uid = group_id.rsplit(":", 2)[-2][:8] if ":" in group_id else ""
        self._owns_client = owns_client
        self._handle = _join(client, group_id, options)
        # What the client keeps for operations whose tickets were dropped. leave() empties it.
        self._place.append(self._handle)
        client._groups.add(self)

    @classmethod
    def _child(cls, client: Client, handle: Handle) -> Group:
        """A group that has come of a split."""
        group = cls.__new__(cls)
        group._handle, group.client, group._owns_client = handle, client, False
        group._place = [handle]
        group._dependents = weakref.WeakSet()
        group._uid = ""
        info = group.info()
        group.rank, group.size = info.rank, info.size
        client._groups.add(group)
        return group

    def info(self) -> GroupInfo:
        """Rank, size, nodes and epoch."""
        info = self._info()
        return GroupInfo(*(getattr(info, name) for name in GroupInfo._fields))

    def _info(self) -> structs.GroupInfo:
        info = structs.sized(structs.GroupInfo)
        library = self.client._library
        library.check(library.tern_group_get_info(self._live(), ctypes.byref(info)))
        return info

    def stats(self) -> GroupStats:
        """What the daemon says of the group and its tensors on this node: see tern.stats(). A group
        that has come of split() has figures of its own. Raises UnknownGroupError after the group's
        end, and for a group of split() UnsupportedError if daemon or library is of an older
        version, which does not tell such groups apart."""
        found = of_group(self.client.socket,
                         Place(self._info().number, self._uid, self.rank, self.size))
        self._uid = found.uid
        return found

    def declare(self, name: str, count: int, dtype: DTypeLike = "float32", *,
                role: str = "exact", recipe: str | None = None, level: str | None = None,
                priority: int = 0, exempt: bool = False, client_blocks: bool = False) -> Tensor:
        """Declares a tensor of `count` elements, the same on all ranks, under a name that is stable
        across steps and runs (1..127 bytes).

        `role`: "exact" and "weights" arrive bit for bit. "gradient" and "delta" may lose values:
        by `recipe`, else the daemon's default, unless `exempt`. `level`: of recipe "auto", such as
        "balanced" or "residual<=2". `client_blocks`: for tern.cuda, which hands blocks to the
        daemon in place of elements; the group has one rank on this node. Raises AlreadyExistsError,
        BadRecipeError, QuotaExceededError; UnsupportedError for what client_blocks cannot do.
        """
        options = declaration(name, count, dtype, role)
        options.recipe = None if recipe is None else recipe.encode()
        options.level = None if level is None else level.encode()
        options.priority, options.exempt = priority, exempt
        options.client_blocks = client_blocks
        return Tensor(self, options)

    def set_level(self, level: str | None) -> None:
        """Sets what tensors may lose that are declared from now on and have no `level` of their
        own: "lossless", "conservative", "balanced", "aggressive", or a bound such as "loss<=0.01"
        (docs/tuner.md). None: the operator's policy again. Every rank says the same, as in
        declare(), which raises the errors of the text. The groups of split() have their own.
        Raises ValueError if the text is empty or longer than 15 bytes; UnsupportedError if the
        library is of an older version.
        """
        set_level = self.client._library.later("tern_group_set_level")
        self.client._library.check(
            set_level(self._live(), None if level is None else level.encode()))

    def push_pull(self, name: str, count: int, dtype: DTypeLike = "float32", *,
                  server: int | None = None, reduction: str = "average",
                  push_recipe: str | None = None, pull_recipe: str | None = None,
                  priority: int = 0) -> PushPull:
        """Declares a parameter server on the ranks for a model of `count` elements.

        `server`: the rank that keeps all of the model; None: every rank keeps a shard, and these
        are equal but for one element. `reduction`: of the gradients, "average" or "sum".
        `push_recipe` and `pull_recipe`: of the gradients and of the differences; "auto" may lose
        values, "raw" is exact. Two tensors of `dtype` are declared, "NAME.push" and "NAME.pull"
        after `name`, with this `priority`: see declare(), which has the errors too.
        """
        if reduction not in ("average", "sum"):
            raise ValueError(f"reduction={reduction!r} is neither average nor sum")
        counts = cut(count, self.size, server)
        push = self.declare(f"{name}.push", count, dtype, role="gradient", recipe=push_recipe,
                            priority=priority)
        try:
            pull = self.declare(f"{name}.pull", count, dtype, role="delta", recipe=pull_recipe,
                                priority=priority)
        except BaseException:
            # The failure's frames would keep it, and its name with it.
            push.release()
            raise
        return PushPull(self, counts, reduction, push, pull)

    def all_reduce(self, x: Any, *, out: Any = None, reduction: str = "sum",
                   dtype: DTypeLike | None = None, tensor: Tensor | None = None,
                   prescale: float = 1.0, state_scale: float = 1.0, priority: int = 0,
                   recipe: str | None = None) -> Ticket:
        """Every rank's output becomes the reduction of all inputs, the same bits on all ranks.

        `x`: n elements; `out`: n elements, or None for in place. `reduction`: "sum", "average" (of
        floating-point and complex types), "min", "max" (a NaN on any rank is the result),
        "product", or "and", "or" and "xor" (of integers and booleans).
        `prescale`: this rank's input is multiplied by it. `state_scale`: the recipe's state is,
        first. Both are floats of 32 bits; ValueError for one that is 0 there.
        """
        return submit(self, Call(table.ALL_REDUCE, x, out, dtype, tensor, reduction,
                                 prescale=prescale, state_scale=state_scale, priority=priority,
                                 recipe=recipe))

    def broadcast(self, x: Any, root: int = 0, *, out: Any = None, dtype: DTypeLike | None = None,
                  tensor: Tensor | None = None, priority: int = 0,
                  recipe: str | None = None) -> Ticket:
        """Every rank's output becomes the input of rank `root`: bit for bit, unless `tensor` is a
        delta and it or the call has a lossy recipe written out. `x` and `out` have n elements;
        without `out`, `x` is overwritten."""
        return submit(self, Call(table.BROADCAST, x, out, dtype, tensor, root=root,
                                 priority=priority, recipe=recipe))

    def reduce(self, x: Any, root: int = 0, *, out: Any = None, reduction: str = "sum",
               dtype: DTypeLike | None = None, tensor: Tensor | None = None,
               prescale: float = 1.0, state_scale: float = 1.0, priority: int = 0,
               recipe: str | None = None) -> Ticket:
        """The output of rank `root` becomes the reduction of all inputs; other ranks get None.
        `x` and the root's `out` have n elements; without `out`, the root's `x` is overwritten.
        `state_scale`: as of all_reduce()."""
        return submit(self, Call(table.REDUCE, x, out, dtype, tensor, reduction, root=root,
                                 prescale=prescale, state_scale=state_scale, priority=priority,
                                 recipe=recipe))

    def reduce_scatter(self, x: Any, counts: Sequence[int] | None = None, *, out: Any = None,
                       reduction: str = "sum", dtype: DTypeLike | None = None,
                       tensor: Tensor | None = None, prescale: float = 1.0,
                       state_scale: float = 1.0, priority: int = 0,
                       recipe: str | None = None) -> Ticket:
        """Every rank gets its share of the reduction of all inputs. `x`: sum of `counts` elements;
        the output: counts[rank]. `counts`: of each rank, the same on all; None: equal shares.
        `state_scale`: as of all_reduce()."""
        return submit(self, Call(table.REDUCE_SCATTER, x, out, dtype, tensor, reduction, counts,
                                 prescale=prescale, state_scale=state_scale, priority=priority,
                                 recipe=recipe))

    def all_gather(self, x: Any, counts: Sequence[int] | None = None, *, out: Any = None,
                   dtype: DTypeLike | None = None, tensor: Tensor | None = None,
                   priority: int = 0, recipe: str | None = None) -> Ticket:
        """Every rank gets the shares of all, that of rank 0 first. `x`: counts[rank] elements; the
        output: the sum of `counts`. `counts`: the same on all ranks; None: equal shares."""
        return submit(self, Call(table.ALL_GATHER, x, out, dtype, tensor, counts=counts,
                                 priority=priority, recipe=recipe))

    def gather(self, x: Any, root: int = 0, counts: Sequence[int] | None = None, *,
               out: Any = None, dtype: DTypeLike | None = None, priority: int = 0) -> Ticket:
        """Rank `root` gets the shares of all, that of rank 0 first; other ranks get None. `x`:
        counts[rank] elements; the root's output: the sum of `counts`. `counts`: the same on all
        ranks; None: equal shares."""
        return submit(self, Call(table.GATHER, x, out, dtype, counts=counts, root=root,
                                 priority=priority))

    def scatter(self, x: Any, root: int = 0, counts: Sequence[int] | None = None, *,
                out: Any = None, dtype: DTypeLike | None = None, priority: int = 0) -> Ticket:
        """Every rank gets its share of the root's `x`, which has the sum of `counts` elements. On
        other ranks `x` is None, and `out`, of counts[rank] elements, is required: it says what
        comes."""
        return submit(self, Call(table.SCATTER, x, out, dtype, counts=counts, root=root,
                                 priority=priority))

    def all_to_all(self, x: Any, *, out: Any = None, counts: Sequence[int] | None = None,
                   receive_counts: Sequence[int] | None = None, dtype: DTypeLike | None = None,
                   priority: int = 0, recipe: str | None = None) -> Ticket:
        """Sends the i-th of `size` parts of `x` to rank i. The output has the part that rank 0 sent
        here first, and must not overlap `x`.

        Without counts all parts are equal, and the output has as many elements as `x`. With them,
        `counts` says how many elements go to each rank, and `receive_counts` how many come from
        each: both are given or neither. What one rank sends must be what the other expects, or all
        ranks get MismatchError. `recipe`: one without memory, such as "bf16", by which floats lose
        values where they leave a node; all ranks give one or none.
        """
        if (counts is None) != (receive_counts is None):
            raise ValueError("give both counts and receive_counts, or neither")
        return submit(self, Call(table.ALL_TO_ALL, x, out, dtype, counts=counts,
                                 receive_counts=receive_counts, priority=priority,
                                 recipe=recipe))

    def send(self, x: Any, dest: int, tag: int = 0, *, dtype: DTypeLike | None = None,
             recipe: str | None = None) -> Ticket:
        """Sends `x` to rank `dest`, which may be this one. Between two ranks, sends with one tag
        (0..2**32-1) meet the recvs with this tag in the order of submission; no other rank takes
        part. The ticket gives None when the receiver has all elements: two ranks that send to each
        other submit both before they wait for one. `recipe`: one without memory, such as "bf16",
        by which floats lose values on the way; the recv must have one too. Raises WouldBlockError
        when 256 sends and recvs of the group are in flight."""
        return _passing.send(self, x, dest, tag, dtype, recipe)

    def recv(self, x: Any, source: int | None = None, tag: int = 0, *,
             dtype: DTypeLike | None = None, recipe: str | None = None) -> Ticket:
        """Receives into `x` what rank `source` sends with the tag; None: what any rank sends
        first. The ticket gives a Received with `source` and `count`; where fewer elements came
        than `x` has, the rest of `x` is as it was. `recipe`: any without memory that loses values
        says that the recv takes what has lost some. If more were sent, or of another type, or with
        a recipe where the recv has none, both ranks get MismatchError."""
        return _passing.recv(self, x, source, tag, dtype, recipe)

    def barrier(self) -> Ticket:
        """Ends when every rank has submitted it."""
        return start(self, self.client._library.tern_barrier, (), None, ())

    def split(self, color: int, key: int = 0, *, timeout: float | None = None,
              op_timeout: float | None = None, verify: bool = False,
              seed: int = 0) -> Group | None:
        """Divides the group: every rank calls it, and those of one `color` become a group of their
        own, in the order of their `key`s, then of their ranks here. Returns that group when all its
        ranks are ready, or None for a negative colour. This group goes on.

        `timeout`, `op_timeout` (seconds), `verify` and `seed` are as in client.join(). The new
        group is left by leave() like any other; it has no id, and cannot be joined again after a
        failure: split anew. Raises WaitTimeoutError (which names the ranks that have not called),
        QuotaExceededError, UnsupportedError. Ctrl-C interrupts it.
        """
        for name, number in (("color", color), ("key", key)):
            if not -(1 << 31) <= operator.index(number) < 1 << 31:
                raise ValueError(f"{name}={number} does not fit in 32 bits")
        options = structs.sized(structs.SplitOptions)
        options.verify, options.seed = verify, seed
        options.timeout_ms = milliseconds(timeout)
        options.op_timeout_ms = milliseconds(op_timeout)
        handle = _split(self, color, key, options)
        return None if handle is None else Group._child(self.client, handle)

    def batch(self) -> Batch:
        """An empty list of operations, to be submitted together."""
        return Batch(self)

    def leave(self) -> None:
        """Leaves the group; operations in flight fail on all ranks with GroupLeftError, those of
        tern.cuda with OperationCancelledError. A second call does nothing, and so does one after
        the daemon was lost."""
        if self._owns_client:
            # It leaves all its groups, once it has reported what has ended.
            self._owns_client = False
            self.client.disconnect()
        for dependent in list(self._dependents):
            dependent._end_before_group()
        self._handle = None
        self._place.clear()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<tern.Group rank {self.rank} of {self.size}>"

    def _live(self) -> Handle:
        handle = self._handle
        if handle is None:
            self.client._live()  # says so if it is the client that has gone
            raise ClosedError("the group has been left; join again")
        return handle


def _join(client: Client, group_id: str, options: structs.JoinOptions) -> Handle:
    library, connection = client._library, client._live()
    text = structs.GroupId(group_id.encode())
    handle = _interruptible(client, lambda pointer: library.tern_group_join(
        connection, ctypes.byref(text), ctypes.byref(options), pointer))
    assert handle is not None  # who has joined has a group
    return handle


def _split(parent: Group, color: int, key: int, options: structs.SplitOptions) -> Handle | None:
    function, group = parent.client._library.later("tern_group_split"), parent._live()
    return _interruptible(parent.client, lambda pointer: function(
        group, color, key, ctypes.byref(options), pointer))


def _interruptible(client: Client, call: Callable[[Any], int]) -> Handle | None:
    """Makes a group in a thread of its own: Python runs signal handlers between calls of the
    library, not in them, and a join may take a minute. Where the caller is interrupted, the thread
    leaves again what it has joined, for nobody has taken the handle."""
    library, connection = client._library, client._live()
    # A group that only operations of dropped tickets kept is left, and its rank is free.
    client._sweep(wanted=True)
    joined: concurrent.futures.Future[Handle | None] = concurrent.futures.Future()

    def run() -> None:
        pointer = ctypes.c_void_p()
        try:
            status = call(ctypes.byref(pointer))
        except BaseException as error:  # an argument that C does not take, for example
            joined.set_exception(error)
            return
        if status == structs.OK:
            leave = library.tern_group_leave
            joined.set_result(Handle(pointer.value, leave, connection) if pointer.value else None)
        else:
            joined.set_exception(library.failure(status))

    if threading.current_thread() is threading.main_thread():
        threading.Thread(target=run, name="tern-join", daemon=True).start()
    else:
        run()
    return joined.result()
