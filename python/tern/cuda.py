"""Tensors in the memory of NVIDIA GPUs, by libtern_cuda.

Kernels encode and decode on the GPU, in the program's own CUDA context, and blocks alone cross to
the daemon. docs/gpu.md has the architecture and what is supported.

    device = tern.cuda.Device(client)              # in a thread whose context is current
    tensor = group.declare("w", n, role="gradient", recipe="int:bits=8", client_blocks=True)
    bound = device.bind(tensor)
    ticket = bound.all_reduce(address, stream=stream)
    ticket.wait()

Addresses are those of the device (CUdeviceptr), as `torch.Tensor.data_ptr()` has them; streams are
CUstream handles, as `torch.cuda.Stream.cuda_stream` has them, and 0 is the default stream.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from . import _structs as structs
from ._cuda_library import CudaLibrary, CudaOp, CudaOptions, CudaStats, cuda_library
from ._handle import Handle
from ._submit import WITHOUT_STATE, zero_factor
from .errors import ClosedError, ForkedError, TernError, WaitTimeoutError, WouldBlockError
from .tensor import parts_for_c

if TYPE_CHECKING:
    from .client import Client
    from .tensor import Tensor

__all__ = ["BoundTensor", "Device", "DeviceStats", "DeviceTicket"]

# As in ticket.py: Ctrl-C comes through between two slices.
_SLICE_MS = 50
# For an operation that was cancelled, because its group or device ends.
_ENDING_S = 5.0

_log = logging.getLogger("tern")


@dataclass(frozen=True)
class DeviceStats:
    """`device_bytes` and `pinned_bytes`: held now, of the GPU and of the host. `operations` have
    ended, `failures` of them badly. `raw_fallbacks`: chunks that went raw because a value was not
    finite. `processor_blocks`: results that no kernel reads, decoded by the processor. `encode_ns`
    and `decode_ns`: on the GPU, over all operations."""

    device_bytes: int
    pinned_bytes: int
    pinning_failures: int
    operations: int
    failures: int
    raw_fallbacks: int
    processor_blocks: int
    encode_ns: int
    decode_ns: int


class Device:
    """The CUDA context of the thread that opens it, with Tern's kernels.

    It must end, by close() or with its last reference, before the context does. Thread: any. After
    fork() a child's device and its tensors raise ForkedError.
    """

    def __init__(self, client: Client, *, operations: int = 64, driver: str | None = None,
                 image: bytes | None = None) -> None:
        """`client`: of the tensors. `operations`: how many may be in flight or not yet reported, 1
        to 512. `driver`: the file name of the CUDA driver, if not libcuda.so.1. `image`: the
        kernels as a cubin or a fat binary, if not those in the library, which has none where it was
        built without nvcc. Raises UnsupportedError without a driver of CUDA 12.0 and a GPU of
        compute capability 8.0, or later ones; LibraryError without libtern_cuda."""
        self._library = cuda_library()
        self._client = client
        self._bound: weakref.WeakSet[BoundTensor] = weakref.WeakSet()
        options = structs.sized(CudaOptions)
        options.operations = operations
        options.driver = None if driver is None else driver.encode()
        options.image = ctypes.cast(ctypes.c_char_p(image), ctypes.c_void_p)
        pointer = ctypes.c_void_p()
        connection = client._live()
        self._handle: Handle | None = None
        try:
            self._library.check("tern_cuda_open", connection, ctypes.byref(options),
                                ctypes.byref(pointer))
        finally:
            # Also where a signal's handler raises before the call's end is seen.
            if pointer.value:
                end = _Ending(self._library, "tern_cuda_close", pointer.value)
                self._handle = Handle(pointer.value, end.end, connection)
                end.goes_first_in(connection.first)
                end.first = self._handle.first
        _open.add(self)

    def bind(self, tensor: Tensor) -> BoundTensor:
        """Makes a tensor ready that was declared with client_blocks=True: takes memory of the arena
        and pins it, and takes memory of the GPU. Nothing else may operate on the tensor meanwhile,
        and no operation should be in flight: pinning may wait for it.

        Raises UnsupportedError for types, recipes and chunk sizes that have no kernels, and
        OutOfMemoryError if the arena, the GPU's memory or what may be pinned is used up.
        """
        return BoundTensor(self, tensor)

    def stats(self) -> DeviceStats:
        """What it holds, and what has been done."""
        stats = structs.sized(CudaStats)
        self._library.check("tern_cuda_get_stats", self._live(), ctypes.byref(stats))
        return DeviceStats(*(getattr(stats, field.name) for field in fields(DeviceStats)))

    def close(self) -> None:
        """Cancels what is in flight, releases its tensors, and ends it. What does not end within
        5 s keeps it, and the log of `tern` says so."""
        for bound in list(self._bound):
            bound._end_before_group()
        self._handle = None

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _live(self) -> Handle:
        self._client._live()  # a child of fork() has neither
        if self._handle is None:
            raise ClosedError("the device has been closed; open it again")
        return self._handle


class _Ending:
    """Ends an object of the library once, whoever comes first: what it belongs to, or what it
    needs. The collector ends what is garbage together in any order, and the library needs all of it
    to the end. It refers to none of them."""

    def __init__(self, library: CudaLibrary, function: str, address: int | None) -> None:
        self._library, self._function = library, function
        self.address = address
        self.first: dict[int, Callable[[], object]] = {}
        self._places: list[dict[int, Callable[[], object]]] = []

    def goes_first_in(self, *places: dict[int, Callable[[], object]]) -> None:
        for place in places:
            place[id(self)] = self.end
            self._places.append(place)

    def end(self, _: object = None) -> int:
        """Its status, of which nothing follows where the collector calls."""
        if self.address is None:
            return structs.OK
        for end in list(self.first.values()):
            end()
        status = self._library.call(self._function, self.address)
        if status != WouldBlockError.status:
            self.address = None
            for place in self._places:
                place.pop(id(self), None)
        return status


# Closed before the interpreter takes its modules apart, and the driver its contexts.
_open: weakref.WeakSet[Device] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for device in list(_open):
        device.close()


class BoundTensor:
    """A declared tensor with its memory on the GPU. It has one operation in flight, which ends when
    its ticket is reported. Thread: any."""

    def __init__(self, device: Device, tensor: Tensor) -> None:
        """`device`.bind(`tensor`) makes it."""
        self._ending: _Ending | None = None
        self._device, self.tensor = device, tensor
        self.count = tensor.count
        self._running: _Operation | None = None
        # Held by who calls the library, so that nobody releases the tensor meanwhile.
        self._lock = threading.RLock()
        # Group and device stay until it has been released.
        group, opened = tensor._group._live(), device._live()
        self._keeps: tuple[Handle, ...] = (group, opened)
        pointer = ctypes.c_void_p()
        try:
            device._library.check("tern_cuda_tensor_bind", opened, group, tensor._live(),
                                  ctypes.byref(pointer))
        finally:
            # Also where a signal's handler raises before the call's end is seen.
            if pointer.value:
                self._ending = _Ending(device._library, "tern_cuda_tensor_release", pointer.value)
                self._ending.goes_first_in(tensor._first, group.first, opened.first)
        tensor._bound = weakref.ref(self)
        tensor._group._dependents.add(self)
        device._bound.add(self)

    def all_reduce(self, source: int, out: int | None = None, *, stream: int = 0,
                   reduction: str = "sum", state_scale: float = 1.0, priority: int = 0,
                   stream_waits: bool = True) -> DeviceTicket:
        """Enqueues an all_reduce behind what is on `stream`, and returns at once.

        `source`, `out`: addresses on the GPU of `count` f32 each, multiples of 16; without `out` in
        place. `reduction`, `state_scale`, `priority`: as of Group.all_reduce(). `stream_waits`:
        what is enqueued on the stream from now on finds the result, and the next operation on it
        begins behind this one. Without it the stream goes on at once, operations on it are under
        way together, and both addresses belong to the operation until the ticket has ended.

        The stream goes on, with the output as it was, when the operation fails: a program that must
        not compute with old values waits for the ticket. Raises WouldBlockError while the tensor
        has an operation, and InvalidArgumentError.
        """
        self._refuse_in_child()
        if reduction not in structs.REDUCTIONS:
            raise ValueError(f"reduction={reduction!r} is none of {', '.join(structs.REDUCTIONS)}")
        op = structs.sized(CudaOp)
        op.reduction = structs.REDUCTIONS[reduction]
        op.input, op.output = source, source if out is None else out
        op.state_scale, op.priority, op.no_wait = state_scale, priority, not stream_waits
        if not op.state_scale:
            raise zero_factor("state_scale", state_scale, WITHOUT_STATE)
        self._sweep()
        try:
            return self._start(op, stream)
        except WouldBlockError:
            # Operations whose tickets were dropped keep their places until somebody asks.
            for other in list(self._device._bound):
                other._sweep()
            return self._start(op, stream)

    def _start(self, op: CudaOp, stream: int) -> DeviceTicket:
        number = ctypes.c_uint64()
        before: _Operation | None = None
        try:
            with self._lock:
                handle = self._device._live()
                try:
                    self._device._library.check("tern_cuda_all_reduce", self._live(),
                                                ctypes.byref(op), stream, ctypes.byref(number))
                finally:
                    # Also where a signal's handler raises before the call's end is seen: the
                    # operation has begun, and uses its memory.
                    if number.value:
                        before = self._running
                        operation = self._running = _Operation(self, handle, number.value)
                return DeviceTicket(operation)
        finally:
            if before is not None:
                self._report(before)  # it has ended since it was asked for

    def export_state(self) -> bytes:
        """As Tensor.export_state(), with what is owed on the GPU in it. Waits for the GPU."""
        self._refuse_in_child()
        library = self._device._client._library
        size = ctypes.c_uint64()
        library.check(library.tern_tensor_state_bytes(self.tensor._live(), ctypes.byref(size)))
        part = ctypes.create_string_buffer(size.value)
        with self._lock:
            self._device._library.check("tern_cuda_tensor_export_state", self._live(), part,
                                        size.value, ctypes.byref(size))
        return part.raw[:size.value]

    def import_state(self, *parts: bytes) -> None:
        """As Tensor.import_state(), with `parts` of either. Waits for the GPU."""
        self._refuse_in_child()
        with self._lock:
            self._device._library.check("tern_cuda_tensor_import_state", self._live(),
                                        *parts_for_c(parts))

    def release(self) -> None:
        """Gives the memory back, and what is owed to the daemon. Raises WouldBlockError while an
        operation is in flight."""
        self._refuse_in_child()
        with self._lock:
            if self._ending is None:
                return
            status = self._ending.end()
            failure = None if status == structs.OK else self._device._library.failure(status)
            if self._ending.address is None:
                self._ending, self._keeps = None, ()
            if failure is not None:
                raise failure

    def _sweep(self) -> None:
        """Asks whether the last operation has ended, which nobody may have done."""
        operation = self._running
        if operation is not None:
            self._report(operation)

    def _report(self, operation: _Operation) -> None:
        if not operation.has_ended(0.0):
            return
        with self._lock:
            if self._running is operation:
                self._running = None
        if operation.error is not None and operation.is_dropped:
            operation.is_dropped = False  # it is told once
            _log.warning("an operation on %s whose ticket was dropped failed: %s",
                         self.tensor.name, operation.error)

    def _end_before_group(self) -> None:
        """Ends the operation in flight, on all ranks, and releases the tensor. A child of fork()
        leaves both to its parent."""
        if self._device._client._forked:
            return
        operation = self._running
        if operation is not None and not operation.has_ended(0.0):
            operation.cancel()
            operation.has_ended(time.monotonic() + _ENDING_S)
        try:
            self.release()
        except TernError as error:
            _log.warning("%s keeps its memory, its group and its daemon: %s", self.tensor.name,
                         error)

    def __del__(self) -> None:
        # What is in flight keeps it.
        if getattr(self, "_ending", None) is not None:
            with contextlib.suppress(TernError):  # nobody is left to be told
                self.release()

    def _refuse_in_child(self) -> None:
        """The thread that held a lock when the process was forked is not in the child, where nobody
        gives the lock back: a child must take none."""
        if self._device._client._forked:
            raise ForkedError("the client belongs to the parent process; connect again in the "
                              "child")

    def _live(self) -> int:
        address = None if self._ending is None else self._ending.address
        if address is None:
            raise ClosedError(f"the tensor {self.tensor.name} has been released; bind it again")
        return address


class _Operation:
    """What is in flight, and keeps its tensor so long, whoever has dropped the ticket."""

    __slots__ = ("_bound", "_handle", "_number", "_lock", "_ended", "error", "is_dropped")

    def __init__(self, bound: BoundTensor, device: Handle, number: int) -> None:
        self._bound: BoundTensor | None = bound
        self._handle, self._number = device, number
        self._lock = threading.Lock()
        self._ended = False
        self.error: BaseException | None = None
        self.is_dropped = True  # until there is a ticket
        _in_flight.add(self)

    @property
    def ended(self) -> bool:
        return self._ended

    def has_ended(self, deadline: float | None) -> bool:
        """Waiting for one slice at most, or until a deadline that is further away."""
        while True:
            left = _SLICE_MS / 1000 if deadline is None else deadline - time.monotonic()
            if self._ask(max(0, int(min(_SLICE_MS, 1000 * left + 0.999)))):
                return True
            if deadline is None or time.monotonic() >= deadline:
                return False

    def cancel(self) -> None:
        bound = self._bound
        if bound is not None:
            bound._refuse_in_child()
            bound._device._library.call("tern_cuda_cancel", self._handle, self._number)

    def _ask(self, timeout_ms: int) -> bool:
        if self._ended:
            return True
        bound = self._bound
        if bound is not None:
            bound._refuse_in_child()
        taken: list[bool] = []
        try:
            # Another thread may be asking, or this one below a signal's handler. In one call: no
            # handler raises between the lock and the note of it then.
            taken.extend(map(self._lock.acquire, (True,), (timeout_ms / 1000,)))
            if not taken[0] or self._ended:
                return self._ended
            assert self._bound is not None
            device = self._bound._device
            statuses: list[int] = []
            try:
                device._library.call_for(statuses, "tern_cuda_wait", self._handle, self._number,
                                         timeout_ms)
            finally:
                if statuses and statuses[0] != WaitTimeoutError.status:
                    self.error = (None if statuses[0] == structs.OK else
                                  device._library.failure(statuses[0]))
                    self._ended, self._bound = True, None
                    _in_flight.discard(self)
            return self._ended
        finally:
            if taken and taken[0]:
                self._lock.release()


_in_flight: set[_Operation] = set()


class DeviceTicket:
    """One operation of a BoundTensor. Every wait gives the same answer. A ticket that is dropped
    does not end its operation, whose failure is then logged. Thread: any."""

    __slots__ = ("_operation",)

    def __init__(self, operation: _Operation) -> None:
        """BoundTensor.all_reduce() makes it, for the `operation`."""
        self._operation = operation
        operation.is_dropped = False

    def wait(self, timeout: float | None = None) -> None:
        """Returns when the output is there. `timeout`: seconds; None waits without limit. Raises
        WaitTimeoutError when it has passed (the operation goes on), and the operation's failure:
        what an operation of a Group raises, or InternalError with what the CUDA driver said."""
        if timeout is not None and math.isnan(timeout):
            raise ValueError("timeout=nan: a timeout is a number of seconds")
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._operation.has_ended(deadline):
            if deadline is not None:
                raise WaitTimeoutError(f"the operation has not ended within {timeout} s; it goes "
                                       "on, and its memory is in use")
        self._answer()

    @property
    def ended(self) -> bool:
        """Whether it has been seen to have ended, well or not. It does not ask."""
        return self._operation.ended

    def test(self) -> bool:
        """Whether the operation has succeeded by now. Raises its failure."""
        if not self._operation.has_ended(0.0):
            return False
        self._answer()
        return True

    def cancel(self) -> None:
        """As Ticket.cancel()."""
        self._operation.cancel()

    def _answer(self) -> None:
        if self._operation.error is not None:
            raise self._operation.error.with_traceback(None)

    def __del__(self) -> None:
        operation = getattr(self, "_operation", None)
        if operation is not None and not operation.ended:
            operation.is_dropped = True

    def __repr__(self) -> str:
        operation = self._operation
        state = ("running" if not operation.ended
                 else "succeeded" if operation.error is None else "failed")
        return f"<tern.cuda.DeviceTicket {state}>"
