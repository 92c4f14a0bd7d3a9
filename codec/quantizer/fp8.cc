// fp8: one byte for each value and, per block, one f32 scale, a power of two (small_float.h says
// why). Side: the scales. Body: the codes. What is smaller than half the smallest subnormal times
// the scale becomes a zero of its sign.
#include "codec/quantizer/block_layout.h"
#include "codec/quantizer/implementation.h"
#include "codec/quantizer/small_float_kernels.h"
#include "codec/target/highway_table.h"

namespace tern::codec::quantizer {
namespace {

const SmallFloatKernels& kernels() noexcept {
  return target::choose(small_float_highway, kSmallFloatScalar);
}

Sizes sizes_of(const Params& params, std::size_t elements) noexcept {
  return {sizeof(float) * block_count(elements, params.block), elements};
}

std::size_t piece(const Params& params) noexcept { return block_piece(params.block); }

template <Fp8Kernels SmallFloatKernels::*format>
bool write(const Params& params, const Input& input, std::byte* side, std::byte* body) noexcept {
  if (!valid_block(params.block)) return false;
  const std::size_t block = params.block == 0 ? input.values.size() : params.block;
  (kernels().*format).encode(input.values, block, side, body);
  return true;
}

template <Fp8Kernels SmallFloatKernels::*format>
bool read(const Params& params, const std::byte* side, const std::byte* body,
          std::span<float> out) noexcept {
  if (!valid_block(params.block)) return false;
  const std::size_t block = params.block == 0 ? out.size() : params.block;
  return (kernels().*format).decode(side, body, block, out);
}

template <Fp8Kernels SmallFloatKernels::*format>
constexpr Implementation kRow = {sizes_of, piece, write<format>, read<format>, biased};

}  // namespace

const Implementation kFp8E4M3 = kRow<&SmallFloatKernels::fp8_e4m3>;
const Implementation kFp8E5M2 = kRow<&SmallFloatKernels::fp8_e5m2>;

}  // namespace tern::codec::quantizer
