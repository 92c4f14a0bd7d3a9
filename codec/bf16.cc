#include "codec/bf16.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "codec/kernels.h"

namespace tern::codec {
namespace {

// Small enough for the stack and the first-level cache, large enough to hide the calls.
constexpr std::size_t kStripElements = 1024;

// Magnitudes from here on would round to infinity: 65408 becomes 65536 in bf16, which f16 lacks.
std::uint32_t overflow_bits(DType delivered) noexcept {
  return delivered == DType::f16 ? 0x477f8000u : 0x7f7f8000u;
}

// Element i goes to lane i % kResidualLanes. Whole rows of lanes at a time and in registers, which
// the compiler makes vectors of; the order of additions within a lane is that of the elements.
void add_to_lanes(const float* values, std::size_t count, float* lanes) noexcept {
  std::array<float, kResidualLanes> sums;
  std::copy_n(lanes, kResidualLanes, sums.begin());
  std::size_t done = 0;
  for (; done + kResidualLanes <= count; done += kResidualLanes) {
    for (std::size_t lane = 0; lane < kResidualLanes; ++lane) sums[lane] += values[done + lane];
  }
  for (std::size_t lane = 0; done + lane < count; ++lane) sums[lane] += values[done + lane];
  std::copy_n(sums.begin(), kResidualLanes, lanes);
}

struct Encoding {
  const EncodeRequest& request;
  float* residual;  // null under memory none
  alignas(64) float lanes[kResidualLanes] = {};
};

// One strip: sums, rounds, and leaves in the residual what the reader will not see.
void encode_strip(Encoding& encoding, std::size_t begin, std::size_t count,
                  std::byte* out) noexcept {
  const EncodeRequest& request = encoding.request;
  float* const residual = encoding.residual;
  const ConvertKernels& kernels = convert_kernels();
  alignas(64) float sum[kStripElements];
  alignas(64) float seen[kStripElements];
  const float* const input = request.input.data() + begin;
  if (residual == nullptr) {
    std::copy_n(input, count, sum);
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] = input[i] + residual[begin + i] * request.state_scale;
    }
  }
  kernels.f32_to_bf16(sum, count, out);
  kernels.bf16_to_f32(out, count, seen);
  if (request.delivered == DType::f16) {
    alignas(64) std::byte delivered[2 * kStripElements];
    kernels.f32_to_f16(seen, count, delivered);
    kernels.f16_to_f32(delivered, count, seen);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const float left = sum[i] - seen[i];
    if (residual != nullptr) residual[begin + i] = left;
    sum[i] = left * left;
  }
  add_to_lanes(sum, count, encoding.lanes);
}

}  // namespace

EncodeResult bf16_encode(const Recipe& recipe, const EncodeRequest& request,
                         const BlockRoom& out) noexcept {
  EncodeResult result;
  const std::size_t count = request.input.size();
  float* const residual = needs_residual(recipe) ? request.state : nullptr;
  alignas(64) float scan_lanes[kScanLanes] = {};
  const std::uint32_t largest = threelc_kernels().scan(
      {request.input.data(), residual, request.state_scale, count}, scan_lanes);
  if (largest >= overflow_bits(request.delivered)) {
    result.nonfinite = true;
    return result;
  }
  Encoding encoding{request, residual};
  for (std::size_t begin = 0; begin < count; begin += kStripElements) {
    const std::size_t strip = std::min(kStripElements, count - begin);
    encode_strip(encoding, begin, strip, out.payload.data() + 2 * begin);
  }
  for (const float lane : scan_lanes) result.input_energy += static_cast<double>(lane);
  for (const float lane : encoding.lanes) result.residual_energy += static_cast<double>(lane);
  if (residual != nullptr && !std::isfinite(result.residual_energy)) {
    for (std::size_t i = 0; i < count; ++i) {
      if (!std::isfinite(residual[i])) residual[i] = 0.0f;
    }
  }
  result.payload_bytes = static_cast<std::uint32_t>(2 * count);
  out.header.codec = static_cast<std::uint8_t>(wire::CodecId::bf16);
  out.header.dtype = static_cast<std::uint8_t>(DType::f32);
  out.header.elements = static_cast<std::uint32_t>(count);
  out.header.payload_bytes = result.payload_bytes;
  out.header.stream_step = request.stream_step;
  return result;
}

DecodeStatus bf16_decode(std::span<const std::byte> payload, std::span<float> out,
                         bool add) noexcept {
  const ConvertKernels& kernels = convert_kernels();
  if (add) {
    kernels.add_bf16(out.data(), payload.data(), out.size());
  } else {
    kernels.bf16_to_f32(payload.data(), out.size(), out.data());
  }
  return DecodeStatus::ok;
}

}  // namespace tern::codec
