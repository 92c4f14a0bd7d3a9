// The symmetric integers for every vector target: the functions of integer_rule.h in plain loops,
// which the compiler vectorizes for the target of the enclosing namespace.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/quantizer/integer_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "codec/quantizer/bit_packing-inl.h"
#include "codec/quantizer/integer_kernels.h"
#include "codec/quantizer/integer_rule.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::quantizer::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

// Codes narrower than a byte pass through a buffer of this many bytes, which stays in L1.
inline constexpr std::size_t kStripe = 512;

HWY_INLINE std::int32_t largest_of(const float* __restrict values, std::size_t count) noexcept {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = magnitude_bits(values[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

struct Stripe {
  const float* values;
  std::size_t count;
  std::uint32_t position;
};

template <unsigned bits, bool stochastic>
HWY_INLINE void write_codes(const Stripe& stripe, IntegerGrid grid, std::uint64_t key,
                            std::uint8_t* __restrict codes) noexcept {
  constexpr std::int32_t kLevel = largest_level(bits);
  const float* __restrict values = stripe.values;
  // As wide as the positions, so that vectors of them need no narrowing.
  const auto count = static_cast<std::uint32_t>(stripe.count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if constexpr (stochastic) {
      codes[i] = stochastic_code<bits>(values[i], grid, random_u32(key, stripe.position + i));
    } else {
      codes[i] = nearest_code(values[i], grid, kLevel);
    }
  }
}

template <unsigned bits, bool stochastic>
HWY_INLINE std::uint8_t* write_block(const Stripe& block, IntegerGrid grid, std::uint64_t key,
                                     std::uint8_t* out) noexcept {
  for (std::size_t at = 0; at < block.count; at += kStripe) {
    const Stripe stripe{block.values + at, std::min(kStripe, block.count - at),
                        block.position + static_cast<std::uint32_t>(at)};
    if constexpr (bits == 8) {
      write_codes<bits, stochastic>(stripe, grid, key, out);
    } else {
      std::uint8_t codes[kStripe];
      write_codes<bits, stochastic>(stripe, grid, key, codes);
      pack_codes<bits>(codes, stripe.count, out);
    }
    out += packed_bytes(stripe.count, bits);
  }
  return out;
}

// Short blocks: so many grids are found before the first is used. Their divisions overlap then, and
// the values are still in L1 when they are read again.
inline constexpr std::size_t kGridsAhead = 8;
inline constexpr std::size_t kShortBlock = 512;

template <unsigned bits, bool stochastic>
void quantize_bits(const IntegerLayout& layout, const IntegerDraws& draws,
                   std::span<const float> values, const IntegerRoom& room) noexcept {
  std::byte* side = room.side;
  std::uint8_t* out = as_u8(room.body);
  const std::size_t block = layout.block;
  const std::size_t ahead = block <= kShortBlock ? kGridsAhead : 1;
  for (std::size_t begin = 0; begin < values.size();) {
    IntegerGrid grids[kGridsAhead];
    std::size_t found = 0;
    for (std::size_t at = begin; at < values.size() && found < ahead; at += block) {
      const std::size_t count = std::min(block, values.size() - at);
      grids[found] = integer_grid(largest_of(values.data() + at, count), largest_level(bits));
      store_f32(side, grids[found].step);
      side += sizeof(float);
      ++found;
    }
    for (std::size_t i = 0; i < found; ++i) {
      const Stripe part{values.data() + begin, std::min(block, values.size() - begin),
                        draws.position + static_cast<std::uint32_t>(begin)};
      out = write_block<bits, stochastic>(part, grids[i], draws.key, out);
      begin += part.count;
    }
  }
}

// Returns the largest code.
template <unsigned bits>
HWY_INLINE std::int32_t read_codes(const std::uint8_t* __restrict codes, std::size_t count,
                                   float step, float* __restrict out) noexcept {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t code = codes[i];
    largest = code > largest ? code : largest;
    out[i] = integer_value(codes[i], step, largest_level(bits));
  }
  return largest;
}

template <unsigned bits>
bool dequantize_bits(const IntegerLayout& layout, const std::byte* side, const std::byte* body,
                     std::span<float> out) noexcept {
  constexpr std::int32_t kLevel = largest_level(bits);
  const std::uint8_t* in = as_u8(body);
  std::int32_t largest = 0;
  for (std::size_t begin = 0; begin < out.size(); begin += layout.block) {
    const std::size_t end = begin + std::min(layout.block, out.size() - begin);
    const float step = load_f32(side);
    side += sizeof(float);
    if (!valid_scale(step, static_cast<float>(kLevel))) return false;
    for (std::size_t at = begin; at < end; at += kStripe) {
      const std::size_t count = std::min(kStripe, end - at);
      std::uint8_t codes[kStripe];
      const std::uint8_t* from = in;
      if constexpr (bits != 8) {
        unpack_codes<bits>(in, count, codes);
        from = codes;
      }
      largest = std::max(largest, read_codes<bits>(from, count, step, out.data() + at));
      in += packed_bytes(count, bits);
    }
  }
  return largest <= 2 * kLevel;
}

template <unsigned bits>
void quantize_rounding(const IntegerLayout& layout, const IntegerDraws& draws,
                       std::span<const float> values, const IntegerRoom& room) noexcept {
  if (draws.stochastic) {
    quantize_bits<bits, true>(layout, draws, values, room);
  } else {
    quantize_bits<bits, false>(layout, draws, values, room);
  }
}

// One function per width, so that all shifts and masks are constants.
void quantize(const IntegerLayout& layout, const IntegerDraws& draws, std::span<const float> values,
              const IntegerRoom& room) noexcept {
  constexpr decltype(&quantize_rounding<2>) kWidths[] = {
      quantize_rounding<2>, quantize_rounding<3>, quantize_rounding<4>, quantize_rounding<5>,
      quantize_rounding<6>, quantize_rounding<7>, quantize_rounding<8>};
  kWidths[layout.bits - 2](layout, draws, values, room);
}

bool dequantize(const IntegerLayout& layout, const std::byte* side, const std::byte* body,
                std::span<float> out) noexcept {
  constexpr decltype(&dequantize_bits<2>) kWidths[] = {
      dequantize_bits<2>, dequantize_bits<3>, dequantize_bits<4>, dequantize_bits<5>,
      dequantize_bits<6>, dequantize_bits<7>, dequantize_bits<8>};
  return kWidths[layout.bits - 2](layout, side, body, out);
}

const IntegerKernels kInteger = {quantize, dequantize};
inline const IntegerKernels* integer_table() noexcept { return &kInteger; }

#else

inline const IntegerKernels* integer_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::quantizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec::quantizer {

TERN_CODEC_HIGHWAY_TABLE(IntegerKernels, integer_highway, integer_table)

}  // namespace tern::codec::quantizer
#endif
