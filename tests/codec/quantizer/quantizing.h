#pragma once

#include <cmath>

#include "quantizer_harness.h"

namespace tern::codec::quantizer {

// What a reader gets of codes that it accepts.
inline std::vector<float> decoded(const Params& params, const Quantized& codes, std::size_t count,
                                  std::size_t shift = 0) {
  const Dequantized back = dequantized(params, codes, count, shift);
  EXPECT_TRUE(back.ok);
  return back.values;
}

inline double squared_error(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double left = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += left * left;
  }
  return sum;
}

inline double energy(std::span<const float> values) {
  return squared_error(values, std::vector<float>(values.size()));
}

// Every target at several alignments against scalar, and pieces against the whole.
inline void expect_same_everywhere(const Params& params) {
  for (const bool contractive : {false, true}) {
    for (const std::size_t count :
         {0u, 1u, 4u, 5u, 6u, 63u, 64u, 65u, 319u, 320u, 321u, 1000u, 1281u, 9999u}) {
      const auto values = gaussian(count, count + 1);
      const Input input = {.values = {}, .key = 3, .position = 17, .contractive = contractive};
      const auto [want, back] = [&] {
        const ForcedTarget scalar("scalar");
        const Quantized codes = quantized(params, values, input);
        return std::pair(codes, decoded(params, codes, count));
      }();
      ASSERT_TRUE(want.ok);
      for (const std::string& name : target_names()) {
        const ForcedTarget forced(name);
        for (const std::size_t shift : {0u, 1u, 7u}) {
          const Quantized got = quantized(params, values, input, shift);
          ASSERT_EQ(got.side, want.side) << name << ' ' << count;
          ASSERT_EQ(got.body, want.body) << name << ' ' << count;
          ASSERT_EQ(bits_of(decoded(params, got, count, shift)), bits_of(back)) << name;
        }
      }
    }
  }
  const std::size_t piece = piece_elements(params);
  if (piece == 0) return;
  const std::size_t count = 5 * piece + 77;
  const auto values = gaussian(count, 12);
  const Input input = {.values = {}, .key = 3, .position = 5, .contractive = true};
  const Quantized whole = quantized(params, values, input);
  Quantized joined;
  for (std::size_t begin = 0; begin < count; begin += 2 * piece) {
    Input part = input;
    part.position += static_cast<std::uint32_t>(begin);
    const std::size_t length = std::min(2 * piece, count - begin);
    const Quantized codes = quantized(params, std::span(values).subspan(begin, length), part);
    joined.side.insert(joined.side.end(), codes.side.begin(), codes.side.end());
    joined.body.insert(joined.body.end(), codes.body.begin(), codes.body.end());
  }
  EXPECT_EQ(joined.side, whole.side);
  EXPECT_EQ(joined.body, whole.body);
}

// Random bytes: no write beyond the output, and nothing that is not finite.
inline void expect_hostile_bytes_do_no_harm(const Params& params) {
  constexpr std::uint64_t kHostileSeed = 21;
  SCOPED_TRACE(testing::Message() << "seed " << kHostileSeed);
  std::mt19937_64 random(kHostileSeed);
  constexpr std::size_t kCount = 333;
  const Quantized good = quantized(params, gaussian(kCount, 2), {.values = {}, .key = 1});
  for (int i = 0; i < 2000; ++i) {
    Quantized bad = good;
    for (std::byte& byte : bad.body) {
      if (random() % 50 == 0) byte = static_cast<std::byte>(random());
    }
    if (i % 2 == 0) bad.side[random() % bad.side.size()] = static_cast<std::byte>(random());
    Guarded<float> out(kCount, 0, 7.0f);
    if (dequantize(params, bad.side.data(), bad.body.data(), out.span())) {
      for (const float value : out.span()) ASSERT_TRUE(std::isfinite(value));
    }
    ASSERT_TRUE(out.intact());
  }
  for (const float scale : {NAN, INFINITY, -INFINITY}) {
    Quantized bad = good;
    std::memcpy(bad.side.data(), &scale, sizeof(scale));
    std::vector<float> out(kCount);
    EXPECT_FALSE(dequantize(params, bad.side.data(), bad.body.data(), out));
  }
}

inline constexpr int kDraws = 20000;
inline const std::vector<float> kVector = {1.0f, -2.0f, 3.0f, -4.0f, 0.5f, 0.0f, 1.5f, -2.5f};

struct Drawn {
  std::vector<double> mean;
  double variance = 0.0;  // summed over the elements, about the values
};

inline Drawn draw_many(const Params& params, const std::vector<float>& values,
                       bool contractive = false) {
  Drawn result{std::vector<double>(values.size()), 0.0};
  for (std::uint64_t key = 0; key < kDraws; ++key) {
    const Quantized codes =
        quantized(params, values, {.values = {}, .key = key * 77 + 5, .contractive = contractive});
    const auto back = decoded(params, codes, values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      result.mean[i] += static_cast<double>(back[i]) / kDraws;
    }
    result.variance += squared_error(back, values) / kDraws;
  }
  return result;
}

}  // namespace tern::codec::quantizer
