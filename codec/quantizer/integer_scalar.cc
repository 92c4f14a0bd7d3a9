// The scalar target of the symmetric integers.
#include <algorithm>

#include "codec/quantizer/bit_order.h"
#include "codec/quantizer/integer_kernels.h"
#include "codec/quantizer/integer_rule.h"

namespace tern::codec::quantizer {
namespace {

template <unsigned bits>
void quantize_bits(const IntegerLayout& layout, const IntegerDraws& draws,
                   std::span<const float> values, const IntegerRoom& room) noexcept {
  std::byte* side = room.side;
  std::uint8_t* const codes = as_u8(room.body);
  std::fill_n(codes, packed_bytes(values.size(), bits), std::uint8_t{0});
  for (std::size_t begin = 0; begin < values.size(); begin += layout.block) {
    const std::size_t end = begin + std::min(layout.block, values.size() - begin);
    std::int32_t largest = 0;
    for (std::size_t i = begin; i < end; ++i)
      largest = std::max(largest, magnitude_bits(values[i]));
    const IntegerGrid grid = integer_grid(largest, largest_level(bits));
    store_f32(side, grid.step);
    side += sizeof(float);
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t position = draws.position + static_cast<std::uint32_t>(i);
      const std::uint8_t code =
          draws.stochastic ? stochastic_code<bits>(values[i], grid, random_u32(draws.key, position))
                           : nearest_code(values[i], grid, largest_level(bits));
      put_code(codes, i, bits, code);
    }
  }
}

void quantize(const IntegerLayout& layout, const IntegerDraws& draws, std::span<const float> values,
              const IntegerRoom& room) noexcept {
  constexpr decltype(&quantize_bits<2>) kWidths[] = {
      quantize_bits<2>, quantize_bits<3>, quantize_bits<4>, quantize_bits<5>,
      quantize_bits<6>, quantize_bits<7>, quantize_bits<8>};
  kWidths[layout.bits - 2](layout, draws, values, room);
}

bool dequantize(const IntegerLayout& layout, const std::byte* side, const std::byte* body,
                std::span<float> out) noexcept {
  const std::int32_t level = largest_level(layout.bits);
  for (std::size_t begin = 0; begin < out.size(); begin += layout.block) {
    const std::size_t end = begin + std::min(layout.block, out.size() - begin);
    const float step = load_f32(side);
    side += sizeof(float);
    if (!valid_scale(step, static_cast<float>(level))) return false;
    for (std::size_t i = begin; i < end; ++i) {
      const auto code = static_cast<std::uint8_t>(get_code(as_u8(body), i, layout.bits));
      if (code > 2 * level) return false;
      out[i] = integer_value(code, step, level);
    }
  }
  return true;
}

}  // namespace

const IntegerKernels kIntegerScalar = {quantize, dequantize};

}  // namespace tern::codec::quantizer
