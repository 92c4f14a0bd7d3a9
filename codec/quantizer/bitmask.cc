// Keeps the sign, the exponent and the top 1 to 23 mantissa bits of every value, the rest cut off
// or rounded to nearest even; with 23 nothing is lost. No side; the body has, for every 4,096
// elements, byte planes: the top 8 bits of each, the next 8, and so on, and last the bits that do
// not fill a byte, packed in the order of bit_order.h.
#include "codec/quantizer/implementation.h"
#include "codec/quantizer/plane_kernels.h"
#include "codec/target/highway_table.h"

namespace tern::codec::quantizer {
namespace {

const PlaneKernels& kernels() noexcept { return target::choose(plane_highway, kPlaneScalar); }

Sizes sizes_of(const Params& params, std::size_t elements) noexcept {
  return {0, bitmask_bytes(elements, params.bits)};  // a group of 4,096 ends at a byte
}

std::size_t piece(const Params&) noexcept { return kPlaneGroup; }

bool write(const Params& params, const Input& input, std::byte*, std::byte* body) noexcept {
  const PlaneKernels& use = kernels();
  const MantissaCut cut{params.bits, params.rounding};
  for (std::size_t begin = 0; begin < input.values.size(); begin += kPlaneGroup) {
    const std::size_t count = std::min(kPlaneGroup, input.values.size() - begin);
    const PlaneValues group{input.values.data() + begin, count};
    // Rounded up to an infinity.
    if (use.write_bitmask(group, cut, body) >= static_cast<std::int32_t>(kInfinityBits)) {
      return false;
    }
    body += bitmask_bytes(count, params.bits);
  }
  return true;
}

bool read(const Params& params, const std::byte*, const std::byte* body,
          std::span<float> out) noexcept {
  const PlaneKernels& use = kernels();
  for (std::size_t begin = 0; begin < out.size(); begin += kPlaneGroup) {
    const std::size_t count = std::min(kPlaneGroup, out.size() - begin);
    if (use.read_bitmask(body, params.bits, {out.data() + begin, count}) >=
        static_cast<std::int32_t>(kInfinityBits)) {
      return false;
    }
    body += bitmask_bytes(count, params.bits);
  }
  return true;
}

}  // namespace

const Implementation kBitmask = {sizes_of, piece, write, read, biased};

}  // namespace tern::codec::quantizer
