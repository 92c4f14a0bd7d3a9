#include "codec/codec.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "codec/bf16.h"
#include "codec/kernels.h"
#include "codec/threelc.h"

namespace tern::codec {
namespace {

EncodeResult raw_encode(const EncodeRequest& request, std::span<std::byte> payload_out,
                        wire::BlockHeader& header_out) noexcept {
  const auto elements = static_cast<std::uint32_t>(request.input.size());
  header_out = raw_block_header(DType::f32, elements, false, request.stream_step);
  if (elements != 0) {
    std::memcpy(payload_out.data(), request.input.data(), header_out.payload_bytes);
  }
  EncodeResult result;
  result.payload_bytes = header_out.payload_bytes;
  return result;
}

DecodeStatus raw_decode(const wire::BlockHeader& header, const std::byte* payload,
                        std::span<float> out, bool add) noexcept {
  const ConvertKernels& kernels = convert_kernels();
  switch (static_cast<DType>(header.dtype)) {
    case DType::f32:
      if (add) {
        kernels.add_f32(out.data(), payload, out.size());
      } else if (!out.empty()) {
        std::memcpy(out.data(), payload, out.size_bytes());
      }
      return DecodeStatus::ok;
    case DType::f16:
      (add ? kernels.add_f16(out.data(), payload, out.size())
           : kernels.f16_to_f32(payload, out.size(), out.data()));
      return DecodeStatus::ok;
    case DType::bf16:
      (add ? kernels.add_bf16(out.data(), payload, out.size())
           : kernels.bf16_to_f32(payload, out.size(), out.data()));
      return DecodeStatus::ok;
    default:
      return DecodeStatus::unsupported_dtype;
  }
}

DecodeStatus decode_any(const wire::BlockHeader& header, std::span<const std::byte> payload,
                        std::span<float> out, bool add) noexcept {
  if (wire::check_block_header(header) != wire::BlockError::none) return DecodeStatus::bad_header;
  if (header.elements != out.size()) return DecodeStatus::wrong_elements;
  if (header.payload_bytes != payload.size()) return DecodeStatus::wrong_payload_bytes;
  switch (static_cast<wire::CodecId>(header.codec)) {
    case wire::CodecId::raw:
      return raw_decode(header, payload.data(), out, add);
    case wire::CodecId::bf16:
      return bf16_decode(payload, out, add);
    case wire::CodecId::threelc:
      return threelc_decode(header, payload, out, add);
  }
  return DecodeStatus::bad_header;
}

}  // namespace

std::size_t encode_bound(const Recipe& recipe, std::size_t elements) noexcept {
  switch (recipe.compressor) {
    case Compressor::raw:
      return 4 * elements;
    case Compressor::bf16:
      return 2 * elements;
    case Compressor::threelc:
      return threelc_bound(recipe, elements);
  }
  return 4 * elements;
}

EncodeResult encode(const Recipe& recipe, const EncodeRequest& request,
                    std::span<std::byte> payload_out, wire::BlockHeader& header_out) noexcept {
  TERN_CHECK(request.input.size() <= wire::kMaxBlockElements);
  TERN_CHECK(payload_out.size() >= encode_bound(recipe, request.input.size()));
  TERN_CHECK(request.residual != nullptr || !needs_residual(recipe) || request.input.empty());
  header_out = wire::BlockHeader{};
  switch (recipe.compressor) {
    case Compressor::raw:
      return raw_encode(request, payload_out, header_out);
    case Compressor::bf16:
      return bf16_encode(recipe, request, payload_out, header_out);
    case Compressor::threelc:
      return threelc_encode(recipe, request, payload_out, header_out);
  }
  return {};
}

ScanResult scan_max(std::span<const float> input, const float* residual,
                    float state_scale) noexcept {
  alignas(64) float energy_lanes[kScanLanes] = {};
  const std::uint32_t largest =
      threelc_kernels().scan(input.data(), residual, state_scale, input.size(), energy_lanes);
  return {std::bit_cast<float>(largest), largest >= kInfinityBits};
}

wire::BlockHeader raw_block_header(DType dtype, std::uint32_t elements, bool nonfinite,
                                   std::uint64_t stream_step) noexcept {
  wire::BlockHeader header;
  header.codec = static_cast<std::uint8_t>(wire::CodecId::raw);
  header.dtype = static_cast<std::uint8_t>(dtype);
  header.flags = nonfinite ? wire::kBlockNonfiniteRaw : 0;
  header.elements = elements;
  header.payload_bytes = static_cast<std::uint32_t>(elements * dtype_bytes(dtype));
  header.stream_step = stream_step;
  return header;
}

std::string_view decode_status_name(DecodeStatus status) noexcept {
  switch (status) {
    case DecodeStatus::ok:
      return "ok";
    case DecodeStatus::bad_header:
      return "bad_header";
    case DecodeStatus::wrong_elements:
      return "wrong_elements";
    case DecodeStatus::wrong_payload_bytes:
      return "wrong_payload_bytes";
    case DecodeStatus::unsupported_dtype:
      return "unsupported_dtype";
    case DecodeStatus::bad_scale:
      return "bad_scale";
    case DecodeStatus::bad_digit:
      return "bad_digit";
    case DecodeStatus::stream_too_short:
      return "stream_too_short";
    case DecodeStatus::stream_too_long:
      return "stream_too_long";
  }
  return "unknown";
}

DecodeStatus decode(const wire::BlockHeader& header, std::span<const std::byte> payload,
                    std::span<float> out) noexcept {
  return decode_any(header, payload, out, false);
}

DecodeStatus decode_add(const wire::BlockHeader& header, std::span<const std::byte> payload,
                        std::span<float> accumulator) noexcept {
  return decode_any(header, payload, accumulator, true);
}

}  // namespace tern::codec
