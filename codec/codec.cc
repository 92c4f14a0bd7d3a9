#include "codec/codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "codec/bf16.h"
#include "codec/kernels.h"
#include "codec/lossless/lossless.h"
#include "codec/memory_kernels.h"
#include "codec/staged.h"
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

// Lossless blocks are f32, f16 or bf16 in their own type, and are added as such.
DecodeStatus lossless_decode(const wire::BlockHeader& header, std::span<const std::byte> payload,
                             std::span<float> out, bool add, Workspace& workspace) noexcept {
  const auto dtype = static_cast<DType>(header.dtype);
  const std::span<std::byte> plain(
      static_cast<std::byte*>(static_cast<void*>(workspace.decoded().data())),
      out.size() * dtype_bytes(dtype));
  const DecodeStatus status = decode_lossless(header, payload, {}, plain, workspace);
  if (status != DecodeStatus::ok) return status;
  return raw_decode(raw_block_header(dtype, header.elements, false, 0), plain.data(), out, add);
}

DecodeStatus check(const wire::BlockHeader& header, std::span<const std::byte> payload,
                   std::size_t elements) noexcept {
  if (wire::check_block_header(header) != wire::BlockError::none) return DecodeStatus::bad_header;
  if (header.elements != elements) return DecodeStatus::wrong_elements;
  if (header.payload_bytes != payload.size()) return DecodeStatus::wrong_payload_bytes;
  return DecodeStatus::ok;
}

DecodeStatus decode_any(const wire::BlockHeader& header, std::span<const std::byte> payload,
                        std::span<float> out, bool add, Workspace& workspace) noexcept {
  if (const auto status = check(header, payload, out.size()); status != DecodeStatus::ok) {
    return status;
  }
  switch (static_cast<wire::CodecId>(header.codec)) {
    case wire::CodecId::raw:
      return raw_decode(header, payload.data(), out, add);
    case wire::CodecId::bf16:
      return bf16_decode(payload, out, add);
    case wire::CodecId::threelc:
      return threelc_decode(header, payload, out, add);
    case wire::CodecId::staged:
      return staged_decode(header, payload, out, add, workspace);
    case wire::CodecId::lossless:
      return lossless_decode(header, payload, out, add, workspace);
    case wire::CodecId::xordelta:
      break;  // needs the last value: decode_lossless
  }
  return DecodeStatus::bad_header;
}

}  // namespace

std::size_t encode_bound(const Recipe& recipe, std::size_t elements) noexcept {
  if (needs_shift(recipe)) return staged_bound(recipe, elements);
  switch (recipe.compressor) {
    case Compressor::bf16:
      return 2 * elements;
    case Compressor::threelc:
      return threelc_bound(recipe, elements);
    case Compressor::staged:
      return staged_bound(recipe, elements);
    case Compressor::raw:
    case Compressor::lossless:
    case Compressor::xordelta:
      break;
  }
  return 4 * elements;
}

EncodeResult encode(const Recipe& recipe, const EncodeRequest& request,
                    std::span<std::byte> payload_out, wire::BlockHeader& header_out,
                    Workspace& workspace) noexcept {
  TERN_CHECK(request.input.size() <= wire::kMaxBlockElements);
  TERN_CHECK(payload_out.size() >= encode_bound(recipe, request.input.size()));
  TERN_CHECK(request.state != nullptr || !has_memory(recipe) || request.input.empty());
  header_out = wire::BlockHeader{};
  if (needs_shift(recipe)) {
    return staged_encode(recipe, request, payload_out, header_out, workspace);
  }
  switch (recipe.compressor) {
    case Compressor::raw:
      return raw_encode(request, payload_out, header_out);
    case Compressor::bf16:
      return bf16_encode(recipe, request, payload_out, header_out);
    case Compressor::threelc:
      return threelc_encode(recipe, request, payload_out, header_out);
    case Compressor::staged:
      return staged_encode(recipe, request, payload_out, header_out, workspace);
    case Compressor::lossless:
    case Compressor::xordelta:
      break;
  }
  TERN_CHECK(!is_lossless(recipe));  // encode_lossless
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
    case DecodeStatus::bad_section:
      return "bad_section";
    case DecodeStatus::bad_codes:
      return "bad_codes";
    case DecodeStatus::unknown_codebook:
      return "unknown_codebook";
    case DecodeStatus::state_gap:
      return "state_gap";
  }
  return "unknown";
}

DecodeStatus decode(const wire::BlockHeader& header, std::span<const std::byte> payload,
                    std::span<float> out, Workspace& workspace) noexcept {
  return decode_any(header, payload, out, false, workspace);
}

DecodeStatus decode_add(const wire::BlockHeader& header, std::span<const std::byte> payload,
                        std::span<float> accumulator, Workspace& workspace) noexcept {
  return decode_any(header, payload, accumulator, true, workspace);
}

DecodeStatus decode_shifted(const wire::BlockHeader& header, std::span<const std::byte> payload,
                            const ShiftStream& stream, std::span<float> out,
                            Workspace& workspace) noexcept {
  if (header.codec != static_cast<std::uint8_t>(wire::CodecId::staged)) {
    return decode_any(header, payload, out, false, workspace);
  }
  const bool first = header.stream_step == 0;
  if (!first && header.stream_step != *stream.step) return DecodeStatus::state_gap;
  const std::span<float> difference{workspace.decoded().data(), out.size()};
  const auto status = decode_any(header, payload, difference, false, workspace);
  if (status != DecodeStatus::ok) return status;
  if (first) std::fill_n(stream.shift, out.size(), 0.0f);
  *stream.step = header.stream_step + 1;
  memory_kernels().advance(stream.shift, stream.state_scale, stream.alpha, difference.data(),
                           out.size(), out.data());
  return DecodeStatus::ok;
}

std::uint32_t encode_lossless(const Recipe& recipe, DType dtype, std::span<const std::byte> in,
                              std::span<std::byte> last, std::uint64_t stream_step,
                              std::span<std::byte> payload_out, wire::BlockHeader& header_out,
                              Workspace& workspace) noexcept {
  header_out = {};
  if (!lossless::supports(dtype) || in.size() < 2) return 0;
  const auto room = payload_out.first(std::min(payload_out.size(), in.size() - 1));
  const bool delta = recipe.compressor == Compressor::xordelta;
  const std::size_t bytes =
      delta ? lossless::xor_encode(dtype, in, last, room, workspace.bytes(), workspace.entropy())
            : lossless::split_encode(dtype, in, room, workspace.bytes(), workspace.entropy());
  if (bytes == 0) return 0;
  header_out.codec = static_cast<std::uint8_t>(recipe.compressor);
  header_out.dtype = static_cast<std::uint8_t>(dtype);
  header_out.elements = static_cast<std::uint32_t>(in.size() / dtype_bytes(dtype));
  header_out.payload_bytes = static_cast<std::uint32_t>(bytes);
  header_out.stream_step = stream_step;
  return header_out.payload_bytes;
}

DecodeStatus decode_lossless(const wire::BlockHeader& header, std::span<const std::byte> payload,
                             std::span<std::byte> last, std::span<std::byte> out,
                             Workspace& workspace) noexcept {
  const auto dtype = static_cast<DType>(header.dtype);
  if (!lossless::supports(dtype)) return DecodeStatus::unsupported_dtype;
  if (const auto status = check(header, payload, out.size() / dtype_bytes(dtype));
      status != DecodeStatus::ok) {
    return status;
  }
  bool sound = false;
  if (header.codec == static_cast<std::uint8_t>(wire::CodecId::lossless)) {
    sound = lossless::split_decode(dtype, payload, out, workspace.bytes(), workspace.entropy());
  } else if (header.codec == static_cast<std::uint8_t>(wire::CodecId::xordelta)) {
    if (last.size() != out.size()) return DecodeStatus::state_gap;
    sound = lossless::xor_decode(dtype, payload, last, out, workspace.bytes(), workspace.entropy());
  } else {
    return DecodeStatus::bad_header;
  }
  return sound ? DecodeStatus::ok : DecodeStatus::bad_codes;
}

}  // namespace tern::codec
