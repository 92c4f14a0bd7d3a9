#include "wire/block.h"

#include <cstring>

namespace tern::wire {
namespace {

// One zero-run code stands for at most this many digit bytes.
constexpr std::uint32_t kLongestZeroRun = 14;

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

std::string_view block_error_name(BlockError error) noexcept {
  switch (error) {
    case BlockError::none:
      return "none";
    case BlockError::short_header:
      return "short_header";
    case BlockError::bad_version:
      return "bad_version";
    case BlockError::bad_codec:
      return "bad_codec";
    case BlockError::bad_dtype:
      return "bad_dtype";
    case BlockError::bad_flags:
      return "bad_flags";
    case BlockError::bad_elements:
      return "bad_elements";
    case BlockError::bad_scale_elements:
      return "bad_scale_elements";
    case BlockError::bad_payload_bytes:
      return "bad_payload_bytes";
    case BlockError::bad_reserved:
      return "bad_reserved";
  }
  return "unknown";
}

BlockError check_block_header(const BlockHeader& header) noexcept {
  if (header.version != kBlockVersion) return BlockError::bad_version;
  if (header.reserved != 0) return BlockError::bad_reserved;
  if (header.elements > kMaxBlockElements) return BlockError::bad_elements;
  switch (static_cast<CodecId>(header.codec)) {
    case CodecId::raw:
      return check_raw(header);
    case CodecId::bf16:
      return check_bf16(header);
    case CodecId::threelc:
      return check_threelc(header);
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
