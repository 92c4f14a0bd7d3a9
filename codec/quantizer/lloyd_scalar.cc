// The scalar target: the plainest form of the lloyd kernels.
#include "codec/quantizer/lloyd_kernels.h"
#include "codec/quantizer/pack.h"

namespace tern::codec::quantizer {
namespace {

void assign(std::span<const float> values, std::span<const float> middles,
            std::uint8_t* codes) noexcept {
  for (const float value : values) {
    unsigned below = 0;
    for (const float middle : middles) below += value > middle ? 1u : 0u;
    *codes++ = static_cast<std::uint8_t>(below);
  }
}

void look_up(std::span<const std::uint8_t> codes, std::span<const float> levels,
             float* out) noexcept {
  for (const std::uint8_t code : codes) *out++ = levels[code];
}

}  // namespace

const LloydKernels kLloydScalar = {assign, look_up, pack_codes, unpack_codes};

}  // namespace tern::codec::quantizer
