#include "wire/block.h"

#include <cstring>

namespace tern::wire {
namespace {

// One zero-run code stands for at most this many digit bytes.
constexpr std::uint32_t kLongestZeroRun = 14;

// The most that a payload of `elements` can have, in any of the forms whose codec has to look
// closer: four bytes for each element and as much for its position, and codebooks and keys.
constexpr std::uint64_t most_payload(std::uint32_t elements) noexcept {
  return 8 * std::uint64_t{elements} + 4096;
}

BlockError check_staged(const BlockHeader& header) noexcept {
  if (header.dtype != static_cast<std::uint8_t>(DType::f32)) return BlockError::bad_dtype;
  constexpr unsigned kThreelc = kBlockPaperLayout | kBlockPadZero | kBlockZeroRun | kBlockAllZero;
  const BlockStages& stages = header.stages;
  const bool threelc = stages.quantizer == static_cast<std::uint8_t>(QuantizerId::threelc);
  const unsigned known = kBlockEntropyStored | (threelc ? kThreelc : 0u);
  if ((header.flags & ~known) != 0) return BlockError::bad_flags;
  if (header.scale_elements > kMaxBlockElements) return BlockError::bad_scale_elements;
  if (stages.sparsifier > static_cast<std::uint8_t>(SparsifierId::blocksparse) ||
      stages.quantizer >= kQuantizerCount || stages.entropy >= kEntropyCount ||
      stages.reserved != 0) {
    return BlockError::bad_stages;
  }
  if (header.payload_bytes > most_payload(header.elements)) return BlockError::bad_payload_bytes;
  return BlockError::none;
}

BlockError check_lossless(const BlockHeader& header) noexcept {
  const auto dtype = static_cast<DType>(header.dtype);
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) {
    return BlockError::bad_dtype;
  }
  if (header.flags != 0) return BlockError::bad_flags;
  if (header.scale_elements != 0) return BlockError::bad_scale_elements;
  // What is not shorter travels raw.
  const bool empty = header.payload_bytes == 0;
  if (!empty && header.payload_bytes >= header.elements * dtype_bytes(dtype)) {
    return BlockError::bad_payload_bytes;
  }
  return BlockError::none;
}

BlockError check_raw(const BlockHeader& header) noexcept {
  const std::size_t element_bytes = dtype_bytes(static_cast<DType>(header.dtype));
  if (element_bytes == 0) return BlockError::bad_dtype;
  if ((header.flags & ~kBlockNonfiniteRaw) != 0) return BlockError::bad_flags;
  if (header.scale_elements != 0) return BlockError::bad_scale_elements;
  if (header.payload_bytes != header.elements * element_bytes) return BlockError::bad_payload_bytes;
  return BlockError::none;
}

BlockError check_bf16(const BlockHeader& header) noexcept {
  if (header.dtype != static_cast<std::uint8_t>(DType::f32)) return BlockError::bad_dtype;
  if (header.flags != 0) return BlockError::bad_flags;
  if (header.scale_elements != 0) return BlockError::bad_scale_elements;
  if (header.payload_bytes != header.elements * 2) return BlockError::bad_payload_bytes;
  return BlockError::none;
}

BlockError check_threelc(const BlockHeader& header) noexcept {
  if (header.dtype != static_cast<std::uint8_t>(DType::f32)) return BlockError::bad_dtype;
  constexpr unsigned kKnown = kBlockPaperLayout | kBlockPadZero | kBlockZeroRun | kBlockAllZero;
  if ((header.flags & ~kKnown) != 0) return BlockError::bad_flags;
  if (header.scale_elements % kBlockRunElements != 0 || header.scale_elements > kMaxBlockElements) {
    return BlockError::bad_scale_elements;
  }
  if ((header.flags & kBlockAllZero) != 0) {
    return header.payload_bytes == 0 ? BlockError::none : BlockError::bad_payload_bytes;
  }
  const std::uint32_t scale_bytes = 4 * block_scale_count(header.elements, header.scale_elements);
  const std::uint32_t most = block_digit_bytes(header.elements);
  const bool zero_run = (header.flags & kBlockZeroRun) != 0;
  const std::uint32_t least = zero_run ? (most + kLongestZeroRun - 1) / kLongestZeroRun : most;
  if (header.payload_bytes < scale_bytes + least || header.payload_bytes > scale_bytes + most) {
    return BlockError::bad_payload_bytes;
  }
  return BlockError::none;
}

}  // namespace

const char* block_error_text(BlockError error) noexcept {
  switch (error) {
    case BlockError::none:
      return "the block header is right";
    case BlockError::short_header:
      return "the block is shorter than its header";
    case BlockError::bad_version:
      return "the block header has an unknown version";
    case BlockError::bad_codec:
      return "the block header names an unknown codec";
    case BlockError::bad_dtype:
      return "the block header has a dtype that its codec has not";
    case BlockError::bad_flags:
      return "the block header has flags that its codec has not";
    case BlockError::bad_elements:
      return "the block header has no elements, or too many";
    case BlockError::bad_scale_elements:
      return "the block header has a wrong number of elements for each scale";
    case BlockError::bad_payload_bytes:
      return "the block header has a payload size that its elements cannot have";
    case BlockError::bad_stages:
      return "the block header has stages that do not fit together";
  }
  return "unknown";
}

BlockError check_block_header(const BlockHeader& header) noexcept {
  if (header.version != kBlockVersion) return BlockError::bad_version;
  if (header.elements > kMaxBlockElements) return BlockError::bad_elements;
  const auto codec = static_cast<CodecId>(header.codec);
  if (codec != CodecId::staged && header.stages != BlockStages{}) return BlockError::bad_stages;
  switch (codec) {
    case CodecId::raw:
      return check_raw(header);
    case CodecId::bf16:
      return check_bf16(header);
    case CodecId::threelc:
      return check_threelc(header);
    case CodecId::staged:
      return check_staged(header);
    case CodecId::lossless:
    case CodecId::xordelta:
      return check_lossless(header);
  }
  return BlockError::bad_codec;
}

BlockError parse_block_header(std::span<const std::byte> bytes, BlockHeader& header) noexcept {
  header = BlockHeader{};
  if (bytes.size() < kBlockHeaderBytes) return BlockError::short_header;
  std::memcpy(&header, bytes.data(), kBlockHeaderBytes);
  return check_block_header(header);
}

void write_block_header(const BlockHeader& header,
                        std::span<std::byte, kBlockHeaderBytes> bytes) noexcept {
  std::memcpy(bytes.data(), &header, kBlockHeaderBytes);
}

}  // namespace tern::wire
