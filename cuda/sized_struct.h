#pragma once

// The structs of tern/cuda.h whose sizes tell the caller's version.

#include "base/sized_struct.h"
#include "cuda/include/tern/cuda.h"

namespace tern {

template <>
inline constexpr std::size_t kFirstBytes<tern_cuda_options> = 24;
template <>
inline constexpr std::size_t kFirstBytes<tern_cuda_op> = 32;
template <>
inline constexpr std::size_t kFirstBytes<tern_cuda_stats> = 80;

}  // namespace tern
