// The OCP microscaling formats, to the letter: blocks of 32 elements, one E8M0 scale byte for each
// (side), and the elements (body). mxfp4 has two elements in a byte, the first in the low nibble; a
// last high nibble without an element is zero and not read.
#include "codec/quantizer/bit_order.h"
#include "codec/quantizer/implementation.h"
#include "codec/quantizer/small_float_kernels.h"
#include "codec/target/highway_table.h"

namespace tern::codec::quantizer {
namespace {

const SmallFloatKernels& kernels() noexcept {
  return target::choose(small_float_highway, kSmallFloatScalar);
}

template <unsigned bits>
Sizes sizes_of(const Params&, std::size_t elements) noexcept {
  return {block_count(elements, kMxBlock), packed_bytes(elements, bits)};
}

std::size_t piece(const Params&) noexcept { return 2 * kMxBlock; }

template <MxKernels SmallFloatKernels::*format>
bool write(const Params&, const Input& input, std::byte* side, std::byte* body) noexcept {
  (kernels().*format).encode(input.values, side, body);
  return true;
}

template <MxKernels SmallFloatKernels::*format>
bool read(const Params&, const std::byte* side, const std::byte* body,
          std::span<float> out) noexcept {
  return (kernels().*format).decode(side, body, out);
}

template <unsigned bits, MxKernels SmallFloatKernels::*format>
constexpr Implementation kRow = {sizes_of<bits>, piece, write<format>, read<format>, biased};

}  // namespace

const Implementation kMxfp8E4M3 = kRow<8, &SmallFloatKernels::mxfp8_e4m3>;
const Implementation kMxfp8E5M2 = kRow<8, &SmallFloatKernels::mxfp8_e5m2>;
const Implementation kMxfp4 = kRow<4, &SmallFloatKernels::mxfp4>;

}  // namespace tern::codec::quantizer
