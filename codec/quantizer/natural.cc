// Natural compression (Horvath, Ho, Horvath, Sahu, Canini, Richtarik, "Natural Compression for
// Distributed Deep Learning", arXiv:1905.10988): every value becomes one of the two powers of two
// around it, at random, so that its expectation is the value. No side; the body has, for every
// 4,096 elements, their exponents, one byte each, and then their signs, one bit each.
#include "codec/quantizer/implementation.h"
#include "codec/quantizer/plane_kernels.h"
#include "codec/target/highway_table.h"

namespace tern::codec::quantizer {
namespace {

// 2^127. What is above it is refused whatever the draw: its upper neighbour is an infinity, and to
// leave that out would be a bias.
constexpr std::int32_t kLargestPower = 0x7f000000;

const PlaneKernels& kernels() noexcept { return target::choose(plane_highway, kPlaneScalar); }

Sizes sizes_of(const Params&, std::size_t elements) noexcept {
  return {0,
          natural_bytes(elements)};  // a group of 4,096 ends at a byte, so the sum is that of all
}

std::size_t piece(const Params&) noexcept { return kPlaneGroup; }

bool write(const Params&, const Input& input, std::byte*, std::byte* body) noexcept {
  const PlaneKernels& use = kernels();
  for (std::size_t begin = 0; begin < input.values.size(); begin += kPlaneGroup) {
    const std::size_t count = std::min(kPlaneGroup, input.values.size() - begin);
    const std::uint32_t position = input.position + static_cast<std::uint32_t>(begin);
    const PlaneValues group{input.values.data() + begin, count};
    if (use.write_natural(group, input.key, position, body) > kLargestPower) return false;
    body += natural_bytes(count);
  }
  return true;
}

bool read(const Params&, const std::byte*, const std::byte* body, std::span<float> out) noexcept {
  const PlaneKernels& use = kernels();
  for (std::size_t begin = 0; begin < out.size(); begin += kPlaneGroup) {
    const std::size_t count = std::min(kPlaneGroup, out.size() - begin);
    if (use.read_natural(body, {out.data() + begin, count}) > kLargestPower) return false;
    body += natural_bytes(count);
  }
  return true;
}

// With t the place of |x| between its neighbours the variance is at most t(1-t)/(1+t)^2 of x^2,
// largest at t = 1/3. It is a contraction as well, in expectation, with delta 7/8.
double omega_of(const Params&, std::size_t) noexcept { return 0.125; }

}  // namespace

const Implementation kNatural = {sizes_of, piece, write, read, omega_of};

}  // namespace tern::codec::quantizer
