#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/dtype.h"

// A block is one encoded chunk: this header, then `payload_bytes` bytes whose form the codec
// defines (docs/codecs.md). A block describes itself: its reader needs nothing but these bytes.
namespace tern::wire {

static_assert(std::endian::native == std::endian::little,
              "wire structs are copied as they lie in memory; a big-endian port converts here");

inline constexpr std::uint8_t kBlockVersion = 1;
// An upper limit for one chunk, so that a foreign header can never ask for more room than this.
inline constexpr std::uint32_t kMaxBlockElements = 1u << 20;
// Scale groups are cut at multiples of one run of the tile layout, so that a run has one scale.
inline constexpr std::uint32_t kBlockRunElements = 64;

enum class CodecId : std::uint8_t {
  raw = 0,
  bf16 = 1,
  threelc = 2,
  staged = 3,    // a sparsifier, a quantizer and an entropy coder; `stages` says which
  lossless = 4,  // f32, f16 or bf16: exponents split off and Huffman-coded
  xordelta = 5,  // f32, f16 or bf16: the difference to the last values of the same stream
};

// The stages of CodecId::staged. Numbers are never used again for something else.
enum class SparsifierId : std::uint8_t { none = 0, topk = 1, randk = 2, blocksparse = 3 };
enum class QuantizerId : std::uint8_t {
  raw = 0,
  bf16 = 1,
  threelc = 2,
  fp16 = 3,
  fp8_e4m3 = 4,
  fp8_e5m2 = 5,
  mxfp8_e4m3 = 6,
  mxfp8_e5m2 = 7,
  mxfp4 = 8,
  integer = 9,
  qsgd = 10,
  terngrad = 11,
  natural = 12,
  onebit = 13,
  bitmask = 14,
  lloyd = 15,
};
inline constexpr std::uint8_t kQuantizerCount = 16;
enum class EntropyId : std::uint8_t {
  none = 0,
  huffman = 1,         // the codebook is in the block
  huffman_static = 2,  // the block names a codebook that both ends have
  zrun = 3,
  gzip = 4,
  zstd = 5,
  lz4 = 6,
};
inline constexpr std::uint8_t kEntropyCount = 7;

enum BlockFlags : std::uint8_t {
  // 3LC: five partitions as long as the chunk instead of tiles of 320 elements.
  kBlockPaperLayout = 1u << 0,
  // 3LC: pad digits are 0 (the letter of the paper) instead of 1 (ternary zero).
  kBlockPadZero = 1u << 1,
  // 3LC: the digit bytes are zero-run coded.
  kBlockZeroRun = 1u << 2,
  // 3LC: every element is zero and the payload is empty.
  kBlockAllZero = 1u << 3,
  // Raw: the sender had a lossy recipe, and sent raw because the chunk holds a NaN or an infinity.
  kBlockNonfiniteRaw = 1u << 4,
  // Staged: the entropy coder did not make the codes any shorter, so they travel as they are.
  kBlockEntropyStored = 1u << 5,
};

// What a reader has to know of the stages of CodecId::staged; all zero for the other codecs.
struct BlockStages {
  std::uint8_t sparsifier = 0;  // SparsifierId
  std::uint8_t quantizer = 0;   // QuantizerId
  std::uint8_t entropy = 0;     // EntropyId
  std::uint8_t bits = 0;        // of the quantizer: bits per code, or mantissa bits kept
  std::uint16_t levels = 0;     // of the quantizer
  std::uint16_t reserved = 0;   // zero and checked, so that a later version may use it

  friend bool operator==(const BlockStages&, const BlockStages&) = default;
};
static_assert(sizeof(BlockStages) == 8);

struct BlockHeader {
  std::uint8_t codec = 0;                // first, because it decides what all the rest means
  std::uint8_t version = kBlockVersion;  // of this struct and of all payload forms together
  std::uint8_t dtype = 0;                // of a raw or lossless payload; f32 for the others
  std::uint8_t flags = 0;            // BlockFlags; a bit that the codec does not know is refused
  std::uint32_t elements = 0;        // count in the chunk; the reader knows it too and compares
  std::uint32_t scale_elements = 0;  // elements per scale or norm; 0 is one for the whole chunk
  std::uint32_t payload_bytes = 0;   // so that a block can be skipped without decoding it
  std::uint64_t stream_step = 0;     // of the sender's codec state; a gap is a lost block
  BlockStages stages;                // so that any reader can undo any recipe

  friend bool operator==(const BlockHeader&, const BlockHeader&) = default;
};

inline constexpr std::size_t kBlockHeaderBytes = 32;
static_assert(sizeof(BlockHeader) == kBlockHeaderBytes);
static_assert(offsetof(BlockHeader, codec) == 0);
static_assert(offsetof(BlockHeader, version) == 1);
static_assert(offsetof(BlockHeader, dtype) == 2);
static_assert(offsetof(BlockHeader, flags) == 3);
static_assert(offsetof(BlockHeader, elements) == 4);
static_assert(offsetof(BlockHeader, scale_elements) == 8);
static_assert(offsetof(BlockHeader, payload_bytes) == 12);
static_assert(offsetof(BlockHeader, stream_step) == 16);
static_assert(offsetof(BlockHeader, stages) == 24);
static_assert(std::is_trivially_copyable_v<BlockHeader>);
static_assert(std::has_unique_object_representations_v<BlockHeader>);

enum class BlockError : std::uint8_t {
  none,
  short_header,
  bad_version,
  bad_codec,
  bad_dtype,
  bad_flags,
  bad_elements,
  bad_scale_elements,
  bad_payload_bytes,
  bad_stages,
};

const char* block_error_text(BlockError error) noexcept;

// Scales in a 3LC payload that is not all zero.
constexpr std::uint32_t block_scale_count(std::uint32_t elements,
                                          std::uint32_t scale_elements) noexcept {
  if (elements == 0) return 0;
  return scale_elements == 0 ? 1 : (elements - 1) / scale_elements + 1;
}

// Digit bytes of a 3LC block before zero-run coding, five elements to a byte in both layouts.
constexpr std::uint32_t block_digit_bytes(std::uint32_t elements) noexcept {
  return elements / 5 + (elements % 5 != 0 ? 1 : 0);
}

// Everything that the header alone can prove wrong. What `none` promises: codec and dtype are
// known, elements <= kMaxBlockElements, and payload_bytes is possible for that codec and count.
BlockError check_block_header(const BlockHeader& header) noexcept;

// Copies the first 32 bytes and checks the copy. On an error `header` holds the copy, for a report.
[[nodiscard]] BlockError parse_block_header(std::span<const std::byte> bytes,
                                            BlockHeader& header) noexcept;

void write_block_header(const BlockHeader& header,
                        std::span<std::byte, kBlockHeaderBytes> bytes) noexcept;

}  // namespace tern::wire
