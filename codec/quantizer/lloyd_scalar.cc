// The scalar target: the plainest form of the lloyd kernels.
#include "codec/quantizer/lloyd_kernels.h"
#include "codec/quantizer/pack.h"

namespace tern::codec::quantizer {
namespace {

void assign(const float* values, std::size_t count, const float* middles, std::size_t middle_count,
            std::uint8_t* codes) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    unsigned below = 0;
    for (std::size_t j = 0; j < middle_count; ++j) below += values[i] > middles[j] ? 1u : 0u;
    codes[i] = static_cast<std::uint8_t>(below);
  }
}

void look_up(const std::uint8_t* codes, std::size_t count, const float* levels, std::size_t,
             float* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = levels[codes[i]];
}

}  // namespace

const LloydKernels kLloydScalar = {assign, look_up, pack_codes, unpack_codes};

}  // namespace tern::codec::quantizer
