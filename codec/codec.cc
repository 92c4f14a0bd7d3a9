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

EncodeResult raw_encode(const EncodeRequest& request, const BlockRoom& out) noexcept {
  const auto elements = static_cast<std::uint32_t>(request.input.size());
  out.header = raw_block_header(DType::f32, elements, false, request.stream_step);
  if (elements != 0) {
    std::memcpy(out.payload.data(), request.input.data(), out.header.payload_bytes);
  }
  EncodeResult result;
  result.payload_bytes = out.header.payload_bytes;
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
DecodeStatus lossless_decode(const BlockView& block, std::span<float> out, bool add,
                             Workspace& workspace) noexcept {
  const auto dtype = static_cast<DType>(block.header.dtype);
  const std::span<std::byte> plain(
      static_cast<std::byte*>(static_cast<void*>(workspace.decoded().data())),
      out.size() * dtype_bytes(dtype));
  const DecodeStatus status = decode_lossless(block, {}, plain, workspace);
  if (status != DecodeStatus::ok) return status;
  return raw_decode(raw_block_header(dtype, block.header.elements, false, 0), plain.data(), out,
                    add);
}

DecodeStatus check(const BlockView& block, std::size_t elements) noexcept {
  if (wire::check_block_header(block.header) != wire::BlockError::none) {
    return DecodeStatus::bad_header;
  }
  if (block.header.elements != elements) return DecodeStatus::wrong_elements;
  if (block.header.payload_bytes != block.payload.size()) return DecodeStatus::wrong_payload_bytes;
  return DecodeStatus::ok;
}

DecodeStatus decode_any(const BlockView& block, std::span<float> out, bool add,
                        Workspace& workspace) noexcept {
  if (const auto status = check(block, out.size()); status != DecodeStatus::ok) {
    return status;
  }
  switch (static_cast<wire::CodecId>(block.header.codec)) {
    case wire::CodecId::raw:
      return raw_decode(block.header, block.payload.data(), out, add);
    case wire::CodecId::bf16:
      return bf16_decode(block.payload, out, add);
    case wire::CodecId::threelc:
      return threelc_decode(block, out, add);
    case wire::CodecId::staged:
      return staged_decode(block, out, add, workspace);
    case wire::CodecId::lossless:
      return lossless_decode(block, out, add, workspace);
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

EncodeResult encode(const Recipe& recipe, const EncodeRequest& request, const BlockRoom& out,
                    Workspace& workspace) noexcept {
  TERN_CHECK(request.input.size() <= wire::kMaxBlockElements);
  TERN_CHECK(out.payload.size() >= encode_bound(recipe, request.input.size()));
  TERN_CHECK(request.state != nullptr || !has_memory(recipe) || request.input.empty());
  out.header = wire::BlockHeader{};
  if (needs_shift(recipe)) {
    return staged_encode(recipe, request, out, workspace);
  }
  switch (recipe.compressor) {
    case Compressor::raw:
      return raw_encode(request, out);
    case Compressor::bf16:
      return bf16_encode(recipe, request, out);
    case Compressor::threelc:
      return threelc_encode(recipe, request, out);
    case Compressor::staged:
      return staged_encode(recipe, request, out, workspace);
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
      threelc_kernels().scan({input.data(), residual, state_scale, input.size()}, energy_lanes);
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

DecodeStatus decode(const BlockView& block, std::span<float> out, Workspace& workspace) noexcept {
  return decode_any(block, out, false, workspace);
}

DecodeStatus decode_add(const BlockView& block, std::span<float> accumulator,
                        Workspace& workspace) noexcept {
  return decode_any(block, accumulator, true, workspace);
}

DecodeStatus decode_add_first(const BlockView& block, const std::byte* own,
                              std::span<float> accumulator, Workspace& workspace) noexcept {
  if (block.header.codec == static_cast<std::uint8_t>(wire::CodecId::threelc)) {
    const auto status = check(block, accumulator.size());
    return status == DecodeStatus::ok ? threelc_decode(block, accumulator, true, own) : status;
  }
  if (!accumulator.empty()) std::memcpy(accumulator.data(), own, accumulator.size_bytes());
  return decode_any(block, accumulator, true, workspace);
}

DecodeStatus decode_shifted(const BlockView& block, const ShiftStream& stream, std::span<float> out,
                            Workspace& workspace) noexcept {
  if (block.header.codec != static_cast<std::uint8_t>(wire::CodecId::staged)) {
    return decode_any(block, out, false, workspace);
  }
  const std::uint64_t step = block.header.stream_step;
  const bool first = step == 0;
  if (!first && step != *stream.step) return DecodeStatus::state_gap;
  const std::span<float> difference{workspace.decoded().data(), out.size()};
  const auto status = decode_any(block, difference, false, workspace);
  if (status != DecodeStatus::ok) return status;
  if (first) std::fill_n(stream.shift, out.size(), 0.0f);
  *stream.step = step + 1;
  memory_kernels().advance({stream.state_scale, stream.alpha}, stream.shift, difference,
                           out.data());
  return DecodeStatus::ok;
}

std::uint32_t encode_lossless(const Recipe& recipe, const LosslessRequest& request,
                              const BlockRoom& out, Workspace& workspace) noexcept {
  const std::span<const std::byte> in = request.input;
  out.header = {};
  if (!lossless::supports(request.dtype) || in.size() < 2) return 0;
  const auto room = out.payload.first(std::min(out.payload.size(), in.size() - 1));
  const lossless::Work work{workspace.bytes(), workspace.entropy()};
  const bool delta = recipe.compressor == Compressor::xordelta;
  const std::size_t bytes =
      delta ? lossless::xor_encode({request.dtype, request.last}, in, room, work)
            : lossless::split_encode(request.dtype, in, room, work);
  if (bytes == 0) return 0;
  out.header.codec = static_cast<std::uint8_t>(recipe.compressor);
  out.header.dtype = static_cast<std::uint8_t>(request.dtype);
  out.header.elements = static_cast<std::uint32_t>(in.size() / dtype_bytes(request.dtype));
  out.header.payload_bytes = static_cast<std::uint32_t>(bytes);
  out.header.stream_step = request.stream_step;
  return out.header.payload_bytes;
}

DecodeStatus decode_lossless(const BlockView& block, std::span<std::byte> last,
                             std::span<std::byte> out, Workspace& workspace) noexcept {
  const auto dtype = static_cast<DType>(block.header.dtype);
  if (!lossless::supports(dtype)) return DecodeStatus::unsupported_dtype;
  if (const auto status = check(block, out.size() / dtype_bytes(dtype));
      status != DecodeStatus::ok) {
    return status;
  }
  const lossless::Work work{workspace.bytes(), workspace.entropy()};
  bool sound = false;
  if (block.header.codec == static_cast<std::uint8_t>(wire::CodecId::lossless)) {
    sound = lossless::split_decode(dtype, block.payload, out, work);
  } else if (block.header.codec == static_cast<std::uint8_t>(wire::CodecId::xordelta)) {
    if (last.size() != out.size()) return DecodeStatus::state_gap;
    sound = lossless::xor_decode({dtype, last}, block.payload, out, work);
  } else {
    return DecodeStatus::bad_header;
  }
  return sound ? DecodeStatus::ok : DecodeStatus::bad_codes;
}

}  // namespace tern::codec
