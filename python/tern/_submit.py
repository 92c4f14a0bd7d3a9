"""From a method's arguments to a tern_op: what every collective checks and does alike."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _structs as structs
from . import arrays
from .arrays import Operand
from .collectives import NOTHING, SHARE, Collective
from .errors import WouldBlockError
from .ticket import Ticket

if TYPE_CHECKING:
    from .arrays import DTypeLike
    from .group import Group
    from .tensor import Tensor

_OP_BYTES = ctypes.sizeof(structs.Op)
# In place of state_scale=0.
WITHOUT_STATE = "declare the tensor under another name to begin with no state"


@dataclass(slots=True)
class Call:
    """A collective with the arguments of one call."""

    collective: Collective
    x: Any
    out: Any = None
    dtype: DTypeLike | None = None
    tensor: Tensor | None = None
    reduction: str = "sum"
    counts: Sequence[int] | None = None
    receive_counts: Sequence[int] | None = None  # of an all_to_all: counts says what is sent
    root: int | None = None
    prescale: float = 1.0
    state_scale: float = 1.0
    priority: int = 0
    recipe: str | None = None


class Prepared(NamedTuple):
    """A call as C takes it, what its ticket returns, and the memory that it uses."""

    op: structs.Op
    result: Any
    keeps: tuple[Any, ...]


def submit(group: Group, call: Call) -> Ticket:
    """Submits the operation. Its ticket keeps all memory that it uses."""
    op, result, keeps = prepare(group, call)
    function = group.client._library.collective(call.collective.name)
    return start(group, function, (ctypes.byref(op),), result, keeps)


def start(group: Group, function: Callable[..., int], arguments: tuple[Any, ...], result: Any,
          keeps: tuple[Any, ...]) -> Ticket:
    """Calls the function of libtern with the group's handle, the arguments, and a place for the
    ticket's number. Where there was no room it does so once more, when operations of dropped
    tickets that have ended have given theirs back."""
    client, number = group.client, ctypes.c_uint64()
    if client._adopted:
        client._sweep()
    try:
        status = function(group._live(), *arguments, ctypes.byref(number))
        if status == WouldBlockError.status:
            client._sweep(wanted=True)
            status = function(group._live(), *arguments, ctypes.byref(number))
        if status != structs.OK:
            raise client._library.failure(status)
        return Ticket(group, number.value, result, keeps)
    except BaseException:
        # A signal's handler has raised when the operation had begun. That goes on, and uses its
        # memory.
        if number.value:
            client._adopt(number.value, (result, keeps, group._place))
        raise


def prepare(group: Group, call: Call) -> Prepared:
    """Checks the arguments, and finds the memory and the result. What a submission costs is mostly
    spent here: it makes few calls of Python's for the plain cases."""
    counts = None if call.counts is None else _counts(group, call.counts)
    received = None if call.receive_counts is None else _counts(group, call.receive_counts)
    source, target, result = _memory(group, call)
    known = source or target
    assert known is not None  # every collective has an input or an output on every rank
    reduction = structs.REDUCTIONS.get(call.reduction)
    if reduction is None:
        raise ValueError(f"reduction={call.reduction!r} is none of "
                         f"{', '.join(structs.REDUCTIONS)}")
    tensor, recipe = call.tensor, call.recipe
    count = _whole(group, call, source, target)
    if tensor is not None:
        _compare_declared(group, tensor, known, count)
    op = structs.Op(
        _OP_BYTES, known.code, None if tensor is None else tensor._live(),
        None if source is None else source.address, None if target is None else target.address,
        count, reduction, call.root or 0, call.priority, call.prescale, call.state_scale)
    # As C has them: a small float of Python's is 0 there.
    if not op.prescale:
        raise zero_factor("prescale", call.prescale, "pass an input of zeros instead")
    if not op.state_scale:
        raise zero_factor("state_scale", call.state_scale, WITHOUT_STATE)
    if recipe is not None:
        op.recipe = recipe.encode()
    if counts is not None:
        op.counts = ctypes.addressof(counts)
    if received is not None:
        op.receive_counts = ctypes.addressof(received)
    return Prepared(op, result, (source, target, counts, received))


def zero_factor(name: str, given: float, instead: str) -> ValueError:
    """For a factor that is 0 as a float of 32 bits: the library takes 0 for 1, and the input or the
    state would count in full. `instead`: what to do."""
    return ValueError(f"{name}={given!r} is 0 as a float of 32 bits, and the library takes 0 for "
                      f"1: {instead}")


def _memory(group: Group, call: Call) -> tuple[Operand | None, Operand | None, Any]:
    """Input, output, and what the ticket returns."""
    collective = call.collective
    at_root = call.root == group.rank
    if call.root is not None and not 0 <= call.root < group.size:
        raise ValueError(f"root={call.root} is no rank of a group of {group.size}")
    takes, gives = collective.sides[1 if at_root else 0]
    source = None if takes == NOTHING else arrays.operand(call.x, call.dtype)
    if source is not None and call.counts is not None:
        _compare_counts(group, call.counts, takes, source)
    if gives == NOTHING:
        return source, None, None
    if call.out is None and collective.in_place:
        assert source is not None  # what works in place has an input everywhere
        if not source.writable:
            raise ValueError("the array is read-only, and the result would take its place: pass "
                             "a writable array as out=")
        return source, source, call.x
    result = call.out
    if result is not None:
        target = arrays.output(result, call.dtype)
    else:
        if source is None:
            raise ValueError(f"{collective.name} on rank {group.rank} needs out=: it says how many "
                             "elements of which type come from the root")
        result = np.empty(_elements(group, call, gives, source), _type_of(call))
        # Its own type may be another that has as many bits: uint16 for bfloat16.
        target = arrays.output(result)._replace(code=source.code)
    counts = call.counts if call.receive_counts is None else call.receive_counts
    if counts is not None:
        _compare_counts(group, counts, gives, target)
    if source is not None:
        _compare(group, call, gives, source, target)
    return source, target, result


def _compare_counts(group: Group, counts: Sequence[int], part: str, memory: Operand) -> None:
    """The library is given pointers: what counts say must be there."""
    wanted = counts[group.rank] if part == SHARE else sum(counts)
    if memory.elements != wanted:
        raise ValueError(f"counts give rank {group.rank} {wanted} elements where its array has "
                         f"{memory.elements}")


def _compare(group: Group, call: Call, gives: str, source: Operand, target: Operand) -> None:
    wanted = _elements(group, call, gives, source)
    if target.code != source.code:
        raise ValueError("the input and out= have elements of different types")
    if target.elements != wanted:
        raise ValueError(f"out= has {target.elements} elements; {call.collective.name} of "
                         f"{source.elements} gives {wanted}")


def _compare_declared(group: Group, tensor: Tensor, memory: Operand, count: int) -> None:
    """The library has type and count from the declaration: that much memory must be there."""
    if tensor._group is not group:
        raise ValueError(f"the tensor {tensor.name} was declared in another group: declare it in "
                         "this one")
    if memory.code != tensor._code:
        raise ValueError(f"the tensor {tensor.name} has elements of type "
                         f"{arrays.name_of(tensor._code)}, but those of the array are of type "
                         f"{arrays.name_of(memory.code)}: convert with astype(), or declare it "
                         "with their dtype")
    if count != tensor.count:
        raise ValueError(f"the tensor {tensor.name} has {tensor.count} elements, but the "
                         f"operation has {count}")


def _type_of(call: Call) -> np.dtype[Any]:
    if isinstance(call.x, np.ndarray):
        dtype: np.dtype[Any] = call.x.dtype
        return dtype
    if call.dtype is not None:
        return arrays.numpy_dtype(call.dtype)
    return arrays.numpy_dtype(arrays.name_of(arrays.operand(call.x).code))


def _elements(group: Group, call: Call, part: str, source: Operand) -> int:
    """How many elements the output has where the input is `source`."""
    if call.receive_counts is not None:
        return sum(call.receive_counts)
    if part != SHARE:
        return _whole(group, call, source, None)
    if call.counts is not None:
        return call.counts[group.rank]
    return source.elements // group.size


def _whole(group: Group, call: Call, source: Operand | None, target: Operand | None) -> int:
    """The elements of the whole operation, as the library is told."""
    if call.receive_counts is not None:
        return 0  # each pair of ranks has its own
    if call.counts is not None:
        return sum(call.counts)
    takes, gives = call.collective.sides[1 if call.root == group.rank else 0]
    if source is not None:
        return source.elements * group.size if takes == SHARE else source.elements
    assert target is not None
    return target.elements * group.size if gives == SHARE else target.elements


def _counts(group: Group, counts: Sequence[int]) -> ctypes.Array[ctypes.c_uint64]:
    """The counts for C."""
    if len(counts) != group.size:
        raise ValueError(f"counts has {len(counts)} entries for a group of {group.size}")
    if min(counts) < 0:
        raise ValueError(f"counts has the negative entry {min(counts)}")
    return (ctypes.c_uint64 * group.size)(*counts)
