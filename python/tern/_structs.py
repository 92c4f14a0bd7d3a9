"""The structs and numbers of tern.h, as ctypes sees them. A test compares every offset with C."""

from __future__ import annotations

import ctypes
from typing import TypeVar

FOREVER = -1
ANY_SOURCE = -1
OK = 0

REDUCTIONS = {"sum": 0, "average": 1, "min": 2, "max": 3, "product": 4, "and": 5, "or": 6,
              "xor": 7}
KINDS = {"all_reduce": 1, "broadcast": 2, "reduce": 5, "reduce_scatter": 6, "all_gather": 7,
         "all_to_all": 9, "gather": 11, "scatter": 12}
ROLES = {"exact": 0, "gradient": 1, "delta": 2, "weights": 3}


class ConnectOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("socket_path", ctypes.c_char_p),
        ("job", ctypes.c_char_p),
        ("arena_bytes", ctypes.c_uint64),
        ("timeout_ms", ctypes.c_int64),
    ]


class GroupId(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 256)]


class JoinOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("rank", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("verify", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("timeout_ms", ctypes.c_int64),
        ("op_timeout_ms", ctypes.c_int64),
    ]


class SplitOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("verify", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("timeout_ms", ctypes.c_int64),
        ("op_timeout_ms", ctypes.c_int64),
    ]


class GroupInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("rank", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("node", ctypes.c_int32),
        ("node_count", ctypes.c_int32),
        ("epoch", ctypes.c_uint32),
        ("last_common_op", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
    ]


class TensorOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("count", ctypes.c_uint64),
        ("dtype", ctypes.c_int),
        ("role", ctypes.c_int),
        ("recipe", ctypes.c_char_p),
        ("level", ctypes.c_char_p),
        ("priority", ctypes.c_int32),
        ("exempt", ctypes.c_uint32),
        ("client_blocks", ctypes.c_uint32),
        ("reserved1", ctypes.c_uint32),
    ]


class TensorStats(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("ops", ctypes.c_uint64),
        ("bytes_raw", ctypes.c_uint64),
        ("bytes_sent", ctypes.c_uint64),
        ("ratio", ctypes.c_double),
        ("residual_ratio", ctypes.c_double),
        ("encode_ns", ctypes.c_uint64),
        ("queue_ns", ctypes.c_uint64),
        ("wire_ns", ctypes.c_uint64),
        ("decode_ns", ctypes.c_uint64),
        ("wait_ns", ctypes.c_uint64),
        ("raw_fallbacks", ctypes.c_uint64),
        ("state_bytes", ctypes.c_uint64),
        ("recipe", ctypes.c_char * 64),
    ]


class Op(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("dtype", ctypes.c_int),
        ("tensor", ctypes.c_void_p),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("reduction", ctypes.c_int),
        ("root", ctypes.c_int32),
        ("priority", ctypes.c_int32),
        ("prescale", ctypes.c_float),
        ("state_scale", ctypes.c_float),
        ("reserved", ctypes.c_uint32),
        ("recipe", ctypes.c_char_p),
        ("wait_event", ctypes.c_uint64),
        ("signal_event", ctypes.c_uint64),
        ("counts", ctypes.c_void_p),
        ("receive_counts", ctypes.c_void_p),
        ("peer", ctypes.c_int32),
        ("tag", ctypes.c_uint32),
        ("received", ctypes.c_void_p),
        ("encoded", ctypes.c_void_p),
    ]


class Received(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("source", ctypes.c_int32),
        ("count", ctypes.c_uint64),
    ]


class BatchOp(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("reserved", ctypes.c_uint32),
        ("op", ctypes.POINTER(Op)),
    ]


class Batch(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("ops", ctypes.POINTER(BatchOp)),
        ("count", ctypes.c_uint64),
        ("tickets", ctypes.POINTER(ctypes.c_uint64)),
    ]


# Those that begin with struct_size, by their names in tern.h.
SIZED = {
    "tern_connect_options": ConnectOptions,
    "tern_join_options": JoinOptions,
    "tern_split_options": SplitOptions,
    "tern_group_info": GroupInfo,
    "tern_tensor_options": TensorOptions,
    "tern_tensor_stats": TensorStats,
    "tern_op": Op,
    "tern_received": Received,
    "tern_batch": Batch,
}

_Sized = TypeVar("_Sized", bound=ctypes.Structure)


def sized(kind: type[_Sized]) -> _Sized:
    """The struct with its struct_size set and all else zero, as the _INIT macro beside it does."""
    return kind(ctypes.sizeof(kind))
