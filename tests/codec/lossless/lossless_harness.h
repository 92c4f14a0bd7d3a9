#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "../codec_harness.h"
#include "codec/lossless/lossless.h"

namespace tern::codec::lossless {

using ByteVector = std::vector<std::byte>;

inline const DType kFloatTypes[] = {DType::f32, DType::f16, DType::bf16};
inline const std::size_t kCounts[] = {0,  1,  2,  3,  4,   5,    6,    15,    16,
                                      17, 63, 64, 65, 127, 4096, 4097, 65541, 1u << 19};

inline std::size_t width_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

inline std::uint32_t narrow(DType dtype, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (dtype == DType::f32) return bits;
  if (dtype == DType::bf16) return bits >> 16;
  const std::uint32_t exponent = bits >> 23 & 0xff;
  if (exponent < 113) return bits >> 16 & 0x8000;
  return (bits >> 16 & 0x8000) | (std::min(exponent - 112, 30u) << 10) | (bits >> 13 & 0x3ff);
}

inline void put(ByteVector& bytes, DType dtype, std::size_t i, std::uint32_t bits) {
  std::memcpy(bytes.data() + i * width_of(dtype), &bits, width_of(dtype));
}

inline ByteVector normal_array(DType dtype, std::size_t count, std::uint64_t seed = 4) {
  const std::vector<float> values = gaussian(count, seed, 0.02f);
  ByteVector bytes(count * width_of(dtype));
  for (std::size_t i = 0; i < count; ++i) put(bytes, dtype, i, narrow(dtype, values[i]));
  return bytes;
}

// NaN with every kind of payload, infinities, both zeros and subnormals among ordinary values.
inline ByteVector special_array(DType dtype, std::size_t count) {
  ByteVector bytes = normal_array(dtype, count);
  const std::uint32_t specials[] = {0x7f800001, 0x7fc00000, 0xffffffff, 0x7f800000, 0xff800000,
                                    0x80000000, 0,          1,          0x807fffff};
  for (std::size_t i = 0; i < count; i += 5) {
    put(bytes, dtype, i, specials[i % 9] >> (dtype == DType::f32 ? 0 : 16));
  }
  return bytes;
}

// What a call works on, each in guards.
struct Places {
  Places(DType dtype, std::size_t bytes, std::size_t room, std::size_t shift)
      : last(bytes, shift),
        out(room, shift + 1, std::byte{0xa5}),
        work(work_bytes(dtype, bytes), shift) {}
  bool intact() const { return last.intact() && out.intact() && work.intact(); }

  Guarded<std::byte> last;
  Guarded<std::byte> out;
  Guarded<std::byte> work;
};

}  // namespace tern::codec::lossless
