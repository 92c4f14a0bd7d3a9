#pragma once

#include "codec/quantizer/params.h"

// One row per quantizer. Private to codec/quantizer/.
namespace tern::codec::quantizer {

struct Implementation {
  Sizes (*sizes)(const Params& params, std::size_t elements) noexcept;
  std::size_t (*piece_elements)(const Params& params) noexcept;
  bool (*quantize)(const Params& params, const Input& input, std::byte* side,
                   std::byte* body) noexcept;
  bool (*dequantize)(const Params& params, const std::byte* side, const std::byte* body,
                     std::span<float> out) noexcept;
  double (*omega)(const Params& params, std::size_t elements) noexcept;
};

// The omega of those that are not unbiased.
inline double biased(const Params&, std::size_t) noexcept { return -1.0; }

extern const Implementation kBf16;
extern const Implementation kBitmask;
extern const Implementation kFp16;
extern const Implementation kFp8E4M3;
extern const Implementation kFp8E5M2;
extern const Implementation kInteger;
extern const Implementation kLloyd;
extern const Implementation kMxfp4;
extern const Implementation kMxfp8E4M3;
extern const Implementation kMxfp8E5M2;
extern const Implementation kNatural;
extern const Implementation kOnebit;
extern const Implementation kQsgd;
extern const Implementation kRaw;
extern const Implementation kTerngrad;

constexpr std::size_t block_count(std::size_t elements, std::uint32_t block) noexcept {
  return elements == 0 ? 0 : block == 0 ? 1 : (elements - 1) / block + 1;
}

}  // namespace tern::codec::quantizer
