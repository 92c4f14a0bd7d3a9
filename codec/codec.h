#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "codec/recipe.h"
#include "codec/workspace.h"
#include "wire/block.h"

// Chunks to blocks and back. Nothing here allocates, throws, or touches a byte outside the spans it
// is given, whatever these hold and even if another process writes to the input meanwhile.
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

// The payload of `elements` elements is never longer than this.
std::size_t encode_bound(const Recipe& recipe, std::size_t elements) noexcept;

// Requires: payload_out.size() >= encode_bound(recipe, input.size()), and a state if
// has_memory(recipe); not for lossless codecs (encode_lossless). If the input changes during the
// call the block is still a valid one, of values nobody asked for; a residual that turned
// non-finite by this is set to zero.
EncodeResult encode(const Recipe& recipe, const EncodeRequest& request,
                    std::span<std::byte> payload_out, wire::BlockHeader& header_out,
                    Workspace& workspace) noexcept;

struct ScanResult {
  float max = 0.0f;  // largest |input + state_scale * residual|
  bool nonfinite = false;
};

// For scale=tensor, before the first chunk is encoded. `residual` may be null.
ScanResult scan_max(std::span<const float> input, const float* residual,
                    float state_scale) noexcept;

// The header of a chunk that travels as its own bytes.
wire::BlockHeader raw_block_header(DType dtype, std::uint32_t elements, bool nonfinite,
                                   std::uint64_t stream_step) noexcept;

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

std::string_view decode_status_name(DecodeStatus status) noexcept;

// All verify the header again, so that it may come straight from memcpy. After an error `out` or
// `accumulator` may be partly written; what was written lies inside it.
DecodeStatus decode(const wire::BlockHeader& header, std::span<const std::byte> payload,
                    std::span<float> out, Workspace& workspace) noexcept;
// Adds the block. An element whose 3LC digit is zero, or that a sparsifier dropped, keeps its bits.
DecodeStatus decode_add(const wire::BlockHeader& header, std::span<const std::byte> payload,
                        std::span<float> accumulator, Workspace& workspace) noexcept;

// The reader's end of a stream under diana or ef21: one sender's blocks of one chunk, in order.
struct ShiftStream {
  float* shift = nullptr;         // as long as the chunk
  std::uint64_t* step = nullptr;  // how many blocks have moved it
  float alpha = 1.0f;
  float state_scale = 1.0f;
};

// out = shift + decoded, and the shift moves as it did at the sender. A block of step 0 begins anew
// from a shift of zero; any other step than the expected one is a gap. A raw block is the value
// itself and moves nothing.
DecodeStatus decode_shifted(const wire::BlockHeader& header, std::span<const std::byte> payload,
                            const ShiftStream& stream, std::span<float> out,
                            Workspace& workspace) noexcept;

// `lossless` and `xordelta`: the elements in their own type, bit for bit. 0, and nothing changed,
// if the block would not be shorter than the elements: send them raw. `last` is the sender's copy
// of what it sent before (xordelta only), as long as `in`.
std::uint32_t encode_lossless(const Recipe& recipe, DType dtype, std::span<const std::byte> in,
                              std::span<std::byte> last, std::uint64_t stream_step,
                              std::span<std::byte> payload_out, wire::BlockHeader& header_out,
                              Workspace& workspace) noexcept;
DecodeStatus decode_lossless(const wire::BlockHeader& header, std::span<const std::byte> payload,
                             std::span<std::byte> last, std::span<std::byte> out,
                             Workspace& workspace) noexcept;

}  // namespace tern::codec
