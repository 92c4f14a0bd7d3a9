#pragma once

// All that a kernel may know of the machine it runs on: threads in warps of 32 and blocks,
// barriers, exchanges within a warp, a block's shared memory, the device's global memory. A kernel
// is written once against this header. nvcc compiles it for GPUs; any other compiler runs it on
// this processor (emulation/launch.h), where each access is checked and counted.
//
//   thread(), threads(), block()   which thread of how many in which block
//   barrier()                      of the block; orders its memory accesses
//   warp_barrier()                 of the warp; orders the warp's
//   shuffle, shuffle_up, ballot, largest, largest_of   exchanges; they order no memory accesses
//   Arena, Shared<T>               arrays of the block; every thread takes the same ones
//   Global<T>                      an array of the device
//   Wide<T>                        16 bytes, which one access moves
//   load_word, store_word          four elements of one byte each, aligned
//
// At most one access of a kind stands on a line of a kernel: the emulation tells accesses of
// different lanes apart by the line. A kernel returns from no thread before its last barrier.
#if defined(__CUDACC__)
#include "codec/device/simt_cuda.h"
#else
#include "codec/device/simt_emulated.h"
#endif

namespace tern::codec::device::simt {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

TERN_DEVICE unsigned lane() { return thread() % kWarp; }
TERN_DEVICE unsigned warp() { return thread() / kWarp; }
TERN_DEVICE unsigned warps() { return threads() / kWarp; }

}  // namespace tern::codec::device::simt
