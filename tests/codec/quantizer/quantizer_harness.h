#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/quantizer/quantizer.h"
#include "tests/codec/codec_harness.h"

namespace tern::codec::quantizer {

// Fixed, and printed by every test that draws.
inline constexpr std::uint64_t kSeed = 20240607;

struct Quantized {
  bool ok = false;
  std::vector<std::byte> side;
  std::vector<std::byte> body;

  friend bool operator==(const Quantized&, const Quantized&) = default;
};

// Between guards, with the values and the bytes as badly aligned as they may be.
inline Quantized quantized(const Params& params, std::span<const float> values, Input draws = {},
                           std::size_t shift = 1) {
  const Sizes room = sizes(params, values.size());
  Guarded<float> input(values.size(), shift, 3.0f);
  std::copy(values.begin(), values.end(), input.data());
  Guarded<std::byte> side(room.side, shift, std::byte{0xa5});
  Guarded<std::byte> body(room.body, shift, std::byte{0x5a});
  draws.values = input.span();
  Quantized out;
  out.ok = quantize(params, draws, side.data(), body.data());
  EXPECT_TRUE(side.intact());
  EXPECT_TRUE(body.intact());
  EXPECT_TRUE(input.intact());
  EXPECT_EQ(bits_of(input.span()), bits_of(values));
  out.side.assign(side.data(), side.data() + room.side);
  out.body.assign(body.data(), body.data() + room.body);
  return out;
}

struct Dequantized {
  bool ok = false;
  std::vector<float> values;
};

inline Dequantized dequantized(const Params& params, const Quantized& codes, std::size_t count,
                               std::size_t shift = 1) {
  Guarded<float> out(count, shift, 7.0f);
  Guarded<std::byte> side(codes.side.size(), shift, std::byte{0xa5});
  Guarded<std::byte> body(codes.body.size(), shift, std::byte{0x5a});
  std::copy(codes.side.begin(), codes.side.end(), side.data());
  std::copy(codes.body.begin(), codes.body.end(), body.data());
  Dequantized result;
  result.ok = dequantize(params, side.data(), body.data(), out.span());
  EXPECT_TRUE(out.intact());
  result.values.assign(out.data(), out.data() + count);
  return result;
}

inline std::vector<float> round_trip(const Params& params, std::span<const float> values,
                                     Input draws = {}) {
  const Quantized codes = quantized(params, values, draws);
  EXPECT_TRUE(codes.ok);
  const Dequantized back = dequantized(params, codes, values.size());
  EXPECT_TRUE(back.ok);
  return back.values;
}

inline std::vector<unsigned> numbers(std::span<const std::byte> bytes) {
  std::vector<unsigned> out;
  for (const std::byte byte : bytes) out.push_back(std::to_integer<unsigned>(byte));
  return out;
}

inline void put_f32(std::vector<std::byte>& bytes, std::size_t index, float value) {
  std::memcpy(bytes.data() + sizeof(float) * index, &value, sizeof(value));
}

// Draws Q(values) `draws` times: every mean within five standard errors of the value, given the
// exact variance of each, and the sum of the variances within 5% of the exact one. `slack`,
// relative to the value, is for the f32 arithmetic.
inline void expect_unbiased(const Params& params, const std::vector<float>& values,
                            const std::vector<double>& variance, double slack = 1e-6) {
  constexpr std::uint32_t kDraws = 20000;
  std::vector<double> sum(values.size());
  double squares = 0.0;
  for (std::uint32_t draw = 0; draw < kDraws; ++draw) {
    Input input;
    input.key = kSeed;
    input.position = draw * static_cast<std::uint32_t>(values.size());
    input.values = values;
    const Sizes room = sizes(params, values.size());
    std::vector<std::byte> side(room.side);
    std::vector<std::byte> body(room.body);
    std::vector<float> out(values.size());
    ASSERT_TRUE(quantize(params, input, side.data(), body.data()));
    ASSERT_TRUE(dequantize(params, side.data(), body.data(), out));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = static_cast<double>(out[i]) - static_cast<double>(values[i]);
      sum[i] += error;
      squares += error * error;
    }
  }
  double exact = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    exact += variance[i];
    const double allowed =
        5.0 * std::sqrt(variance[i] / kDraws) + slack * std::fabs(static_cast<double>(values[i]));
    EXPECT_NEAR(sum[i] / kDraws, 0.0, allowed) << i << " seed " << kSeed;
  }
  EXPECT_NEAR(squares / kDraws, exact, 0.05 * exact) << "seed " << kSeed;
}

}  // namespace tern::codec::quantizer
