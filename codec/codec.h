#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "codec/recipe.h"
#include "wire/block.h"

// Chunks to blocks and back. Nothing here allocates, throws, or touches a byte outside the spans it
// is given, whatever these hold and even if another process writes to the input meanwhile.
namespace tern::codec {

struct EncodeRequest {
  std::span<const float> input;  // the chunk, at most wire::kMaxBlockElements
  float* residual = nullptr;     // as long as input; not used under memory none
  float state_scale = 1.0f;      // the residual is multiplied by this before use
  DType delivered = DType::f32;  // the residual is taken against the value rounded to this
  float fixed_scale_max = 0.0f;  // scale=tensor only: the maximum that scan_max found
  std::uint64_t stream_step = 0;
};

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

// Requires: payload_out.size() >= encode_bound(recipe, input.size()), and a residual if
// needs_residual(recipe). If the input changes during the call the block is still a valid one, of
// values nobody asked for; a residual that turned non-finite by this is set to zero.
EncodeResult encode(const Recipe& recipe, const EncodeRequest& request,
                    std::span<std::byte> payload_out, wire::BlockHeader& header_out) noexcept;

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
  bad_scale,            // a scale that is negative, infinite or NaN
  bad_digit,            // a byte above 242 without zero-run coding
  stream_too_short,     // the zero-run stream expands to fewer digit bytes than the chunk has
  stream_too_long,      // or to more, or bytes follow it
};

std::string_view decode_status_name(DecodeStatus status) noexcept;

// Both verify the header again, so that it may come straight from memcpy. After an error `out` or
// `accumulator` may be partly written; what was written lies inside it.
DecodeStatus decode(const wire::BlockHeader& header, std::span<const std::byte> payload,
                    std::span<float> out) noexcept;
// Adds the block. An element whose digit is zero keeps its bits.
DecodeStatus decode_add(const wire::BlockHeader& header, std::span<const std::byte> payload,
                        std::span<float> accumulator) noexcept;

}  // namespace tern::codec
