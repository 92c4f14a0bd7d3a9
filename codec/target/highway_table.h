#pragma once

#include <hwy/detect_targets.h>

#include <cstdint>

#include "codec/target/target.h"

// For files that are compiled once per vector target (foreach_target.h). A family of kernels is a
// struct of function pointers, a "table": one of scalar functions, the reference, and one in each
// target's namespace, that a function of that namespace returns (null where there is none).

// Defines `const Type* name(std::int64_t highway_target)` in the one pass in which HWY_ONCE is
// true, from the function `table` of every target's namespace.
#if HWY_ARCH_X86
#ifdef TERN_FEW_SIMD_TARGETS
#define TERN_CODEC_SSE4_TABLE(table) nullptr
#else
#define TERN_CODEC_SSE4_TABLE(table) N_SSE4::table()
#endif
#define TERN_CODEC_HIGHWAY_TABLE(Type, name, table)              \
  const Type* name(std::int64_t target) noexcept {               \
    if (target == HWY_SSE4) return TERN_CODEC_SSE4_TABLE(table); \
    if (target == HWY_AVX2) return N_AVX2::table();              \
    if (target == HWY_AVX3) return N_AVX3::table();              \
    return nullptr;                                              \
  }
#elif HWY_ARCH_ARM_A64
#define TERN_CODEC_HIGHWAY_TABLE(Type, name, table)        \
  const Type* name(std::int64_t target) noexcept {         \
    return target == HWY_NEON ? N_NEON::table() : nullptr; \
  }
#else
#define TERN_CODEC_HIGHWAY_TABLE(Type, name, table) \
  const Type* name(std::int64_t) noexcept { return nullptr; }
#endif

namespace tern::codec::target {

// The table of the active target.
template <typename Table>
const Table& choose(const Table* (*highway)(std::int64_t) noexcept, const Table& scalar) noexcept {
  const Table* const table = highway(active().highway);
  return table != nullptr ? *table : scalar;
}

}  // namespace tern::codec::target
