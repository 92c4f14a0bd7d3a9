#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

// The arithmetic of a reduction, at a node and at the owner of a chunk: begin with the first
// contribution, accumulate the others in a fixed order, finish once.
//
// An accumulator holds f32 for f32, f16 and bf16, and the type itself for all others; integers
// wrap. It is aligned to its type; source and destination bytes need no alignment. The arrays
// of one call do not overlap. Integers and booleans take no prescale (it must be 1). What a
// reduction objects to (base/dtype.h) must not be asked for.
namespace tern::codec {

// Bytes per element of the accumulator for a dtype; 0 for a number that is no type.
constexpr std::size_t accumulator_bytes(DType dtype) noexcept {
  return dtype == DType::f16 || dtype == DType::bf16 ? sizeof(float) : dtype_bytes(dtype);
}

// Elements as they travel or as an application has them.
struct Elements {
  DType dtype;
  const std::byte* bytes;
  std::size_t count;
};
struct ElementsOut {
  DType dtype;
  std::byte* bytes;
  std::size_t count;
};

// accumulator[i] = source[i] * prescale
void accumulate_begin(const Elements& source, float prescale, void* accumulator) noexcept;

// accumulator[i] = accumulator[i] OP source[i] * prescale, where sum and average add. A NaN on
// either side of min and max wins; of equal values the accumulator's stays.
void accumulate(Reduction reduction, const Elements& source, float prescale,
                void* accumulator) noexcept;

// accumulate_begin with `own` and accumulate with `source`, of the same type and count, in one pass
// over memory where it is the usual one: a sum of f32.
void accumulate_first(Reduction reduction, const Elements& own, const std::byte* source,
                      void* accumulator) noexcept;

// Average multiplies by 1 / rank_count in the accumulator's type; then one rounding to the dtype,
// to nearest even. The destination may be the accumulator itself if the two have the same size.
void accumulate_finish(Reduction reduction, const void* accumulator, std::uint32_t rank_count,
                       const ElementsOut& out) noexcept;

// Requires: f32, f16 or bf16.
void to_f32(DType dtype, const std::byte* source, std::size_t count, float* out) noexcept;
void from_f32(DType dtype, const float* source, std::size_t count, std::byte* out) noexcept;

}  // namespace tern::codec
