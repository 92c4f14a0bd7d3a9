#include "blocks/results.h"

#include <bit>
#include <cstring>
#include <string>

#include "codec/accumulate.h"
#include "wire/block.h"

namespace tern::blocks {
namespace {

const char* text_of(codec::DecodeStatus status) noexcept {
  return status == codec::DecodeStatus::ok ? nullptr : codec::decode_status_name(status).data();
}

}  // namespace

Status Results::decode(std::span<const std::byte> slots, std::span<std::byte> output,
                       codec::Workspace& workspace) {
  for (std::uint64_t number = 0; number < layout_.chunks(); ++number) {
    const Chunk chunk = layout_.chunk(number);
    const auto slot = slots.subspan(layout_.slot_offset(chunk), layout_.said().slot_bytes);
    wire::BlockHeader header;
    const auto error = wire::parse_block_header(slot, header);
    const char* problem = nullptr;
    if (error != wire::BlockError::none) {
      problem = wire::block_error_text(error);
    } else if (header.elements != chunk.elements || header.payload_bytes > layout_.payload_room()) {
      problem = "the block's sizes differ from the chunk's";
    } else {
      problem = decode_block(
          {header, slot.subspan(wire::kBlockHeaderBytes, header.payload_bytes)},
          output.subspan(layout_.input_offset(chunk), layout_.input_bytes(chunk)), workspace);
    }
    if (problem != nullptr) {
      return fail(Errc::corrupt_data,
                  "the result of chunk " + std::to_string(number) + ": " + problem);
    }
  }
  return {};
}

const char* Results::decode_block(const codec::BlockView& block, std::span<std::byte> out,
                                  codec::Workspace& workspace) {
  const auto codec = static_cast<wire::CodecId>(block.header.codec);
  if (codec != wire::CodecId::raw && codec != wire::CodecId::lossless) {
    return decode_lossy(block, out, workspace);
  }
  if (block.header.dtype != static_cast<std::uint8_t>(layout_.dtype())) {
    return "a block of another dtype";
  }
  if (codec == wire::CodecId::lossless) {
    return text_of(codec::decode_lossless(block, {}, out, workspace));
  }
  if (block.payload.size() != out.size()) return "a raw block of other elements";
  std::memcpy(out.data(), block.payload.data(), out.size());
  return nullptr;
}

const char* Results::decode_lossy(const codec::BlockView& block, std::span<std::byte> out,
                                  codec::Workspace& workspace) {
  const DType dtype = layout_.dtype();
  if (codec::accumulator_bytes(dtype) != sizeof(float) || !dtype_is_float(dtype)) {
    return "a lossy block of a type that loses nothing";
  }
  const bool direct =
      dtype == DType::f32 && std::bit_cast<std::uintptr_t>(out.data()) % alignof(float) == 0;
  if (direct) {
    float* const floats = static_cast<float*>(static_cast<void*>(out.data()));
    return text_of(codec::decode(block, {floats, block.header.elements}, workspace));
  }
  if (floats_.empty()) floats_.resize(layout_.chunk(0).elements);
  const std::span<float> values = std::span(floats_).first(block.header.elements);
  const char* const problem = text_of(codec::decode(block, values, workspace));
  if (problem == nullptr) codec::from_f32(dtype, values.data(), values.size(), out.data());
  return problem;
}

}  // namespace tern::blocks
