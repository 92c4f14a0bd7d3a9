#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "wire/block.h"

// What a compressor is given and what it says: the words that all of codec/ shares, whichever
// compressor it is.
namespace tern::codec {

struct EncodeRequest {
  std::span<const float> input;  // the chunk, at most wire::kMaxBlockElements
  // As long as input: the residual under ef, the shift under diana and ef21; not used under none.
  float* state = nullptr;
  float state_scale = 1.0f;      // the state is multiplied by this before use
  DType delivered = DType::f32;  // the residual is taken against the value rounded to this
  float fixed_scale_max = 0.0f;  // scale=tensor only: the maximum that scan_max found
  std::uint64_t stream_step = 0;
  // The rest is for staged recipes and for diana and ef21.
  std::uint64_t key = 0;  // of all random draws for this chunk
  // False: the sparsifier is left out. So is it for what all nodes get alike from an owner unless
  // an error is remembered: the same random elements for all is not what randk is for.
  bool sparsify = true;
  float alpha = 1.0f;  // shift_alpha of the tensor's declared recipe
  // diana and ef21: the values as they are, so that the shift is right at once; EF21 begins so.
  // payload_out then needs four bytes for each element.
  bool exact = false;
  float* codebook = nullptr;  // lloyd: kCodebookLevels levels of the last step; may be null
  // diana and ef21, may be null: what the readers of the block will have, as long as input.
  float* delivered_out = nullptr;
};

inline constexpr std::size_t kCodebookLevels = 64;

struct EncodeResult {
  std::uint32_t payload_bytes = 0;
  // The chunk cannot be encoded: a NaN or an infinity, or a scale that overflows. Nothing was
  // changed and the header is the default one; the caller sends the chunk raw (raw_block_header).
  bool nonfinite = false;
  // Sums of squares of the input and of what this block leaves in the residual (or drops, under
  // memory none). Kept in f32 lanes, so values beyond about 1e18 or below 1e-22 do not count right.
  // Both are 0 for raw.
  double input_energy = 0.0;
  double residual_energy = 0.0;
};

// Where a block is written.
struct BlockRoom {
  std::span<std::byte> payload;
  wire::BlockHeader& header;
};

// A block as it came, or as it will go. Nothing of it is believed before it was checked.
struct BlockView {
  const wire::BlockHeader& header;
  std::span<const std::byte> payload;
};

// An array that travels in its own type, bit for bit.
struct LosslessRequest {
  DType dtype = DType::f32;
  std::span<const std::byte> input;
  // xordelta only: the sender's copy of what it sent before, as long as the input.
  std::span<std::byte> last;
  std::uint64_t stream_step = 0;
};

enum class DecodeStatus : std::uint8_t {
  ok,
  bad_header,
  wrong_elements,       // the header's count is not the length of the output
  wrong_payload_bytes,  // the payload is not as long as the header says
  unsupported_dtype,    // raw of a type that is not f32, f16 or bf16: reduce its bytes instead
  bad_scale,            // a scale that is negative, infinite or NaN, or a code that does not exist
  bad_digit,            // a byte above 242 without zero-run coding
  stream_too_short,     // the zero-run stream expands to fewer digit bytes than the chunk has
  stream_too_long,      // or to more, or bytes follow it
  bad_section,          // positions that are not ascending or not in the chunk
  bad_codes,            // the entropy coder's bytes are not what it writes
  unknown_codebook,     // the static codebook that the block names is not installed here
  state_gap,            // the reader's state is not the one that the sender had
};

}  // namespace tern::codec
