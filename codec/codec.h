#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "codec/coding.h"
#include "codec/recipe.h"
#include "codec/workspace.h"
#include "wire/block.h"

// Chunks to blocks and back. Nothing here allocates, throws, or touches a byte outside the spans it
// is given, whatever these hold and even if another process writes to the input meanwhile.
namespace tern::codec {

// The payload of `elements` elements is never longer than this.
std::size_t encode_bound(const Recipe& recipe, std::size_t elements) noexcept;

// Requires: out.payload.size() >= encode_bound(recipe, input.size()), and a state if
// has_memory(recipe); not for lossless codecs (encode_lossless). If the input changes during the
// call the block is still a valid one, of values nobody asked for; a residual that turned
// non-finite by this is set to zero.
EncodeResult encode(const Recipe& recipe, const EncodeRequest& request, const BlockRoom& out,
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

std::string_view decode_status_name(DecodeStatus status) noexcept;

// All verify the header again, so that it may come straight from memcpy. After an error `out` or
// `accumulator` may be partly written; what was written lies inside it.
DecodeStatus decode(const BlockView& block, std::span<float> out, Workspace& workspace) noexcept;
// Adds the block. An element whose 3LC digit is zero, or that a sparsifier dropped, keeps its bits.
DecodeStatus decode_add(const BlockView& block, std::span<float> accumulator,
                        Workspace& workspace) noexcept;
// accumulator = own, which is as many unaligned f32, and decode_add. For 3LC in the tile layout in
// one pass over memory.
DecodeStatus decode_add_first(const BlockView& block, const std::byte* own,
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
DecodeStatus decode_shifted(const BlockView& block, const ShiftStream& stream, std::span<float> out,
                            Workspace& workspace) noexcept;

// `lossless` and `xordelta`: the elements in their own type, bit for bit. 0, and nothing changed,
// if the block would not be shorter than the elements: send them raw.
std::uint32_t encode_lossless(const Recipe& recipe, const LosslessRequest& request,
                              const BlockRoom& out, Workspace& workspace) noexcept;
DecodeStatus decode_lossless(const BlockView& block, std::span<std::byte> last,
                             std::span<std::byte> out, Workspace& workspace) noexcept;

}  // namespace tern::codec
