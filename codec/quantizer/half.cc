// bf16 and fp16: two bytes for each value, rounded to nearest even, and no side bytes. A value that
// would round to an infinity is refused, so that no reader ever sees one.
#include "codec/quantizer/half_kernels.h"
#include "codec/quantizer/implementation.h"
#include "codec/target/highway_table.h"

namespace tern::codec::quantizer {
namespace {

// Halfway between the largest finite number of the format and the power of two above it, which is
// where rounding begins to overflow.
constexpr std::int32_t kBf16Overflow = 0x7f7f8000;
constexpr std::int32_t kFp16Overflow = 0x477ff000;  // 65520
// The exponent is all ones from here on.
constexpr std::int32_t kBf16Infinity = 0x7f80;
constexpr std::int32_t kFp16Infinity = 0x7c00;

const HalfKernels& kernels() noexcept { return target::choose(half_highway, kHalfScalar); }

Sizes sizes_of(const Params&, std::size_t elements) noexcept { return {0, 2 * elements}; }

std::size_t piece(const Params&) noexcept { return 64; }

bool write_bf16(const Params&, const Input& input, std::byte*, std::byte* body) noexcept {
  return kernels().to_bf16(input.values.data(), input.values.size(), body) < kBf16Overflow;
}

bool write_fp16(const Params&, const Input& input, std::byte*, std::byte* body) noexcept {
  return kernels().to_fp16(input.values.data(), input.values.size(), body) < kFp16Overflow;
}

bool read_bf16(const Params&, const std::byte*, const std::byte* body,
               std::span<float> out) noexcept {
  return kernels().from_bf16(body, out.size(), out.data()) < kBf16Infinity;
}

bool read_fp16(const Params&, const std::byte*, const std::byte* body,
               std::span<float> out) noexcept {
  return kernels().from_fp16(body, out.size(), out.data()) < kFp16Infinity;
}

}  // namespace

const Implementation kBf16 = {sizes_of, piece, write_bf16, read_bf16, biased};
const Implementation kFp16 = {sizes_of, piece, write_fp16, read_fp16, biased};

}  // namespace tern::codec::quantizer
