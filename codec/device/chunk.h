#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

// What kernels are told and what they answer. A launch has one block of threads for each chunk, and
// an array of these in the device's memory.
namespace tern::codec::device {

// As EncodeResult of the processor's codec.
struct EncodeOutcome {
  std::uint32_t payload_bytes = 0;
  std::uint32_t nonfinite = 0;  // 1: nothing was changed but this and the header; send it raw
  double input_energy = 0.0;
  double residual_energy = 0.0;
};

struct EncodeChunk {
  const float* input;  // aligned to 16 bytes; so are the next two. Nobody writes to it meanwhile
  float* residual;     // as long as the input; null: memory none
  std::byte* block;    // a header of wire/block.h, and after it room for the codec's bound
  EncodeOutcome* outcome;
  std::uint64_t stream_step;
  std::uint32_t elements;
  float state_scale;
  float fixed_scale_max;  // 3LC with one scale for the tensor: the largest magnitude of the tensor
  DType delivered;        // the residual is taken against the value rounded to this
};

// The stage of a 3LC recipe. Tile layout, pad digit 1.
struct ThreelcStage {
  std::uint32_t scale_elements = 4096;  // 0: one scale, from the largest magnitude of the tensor
  float s = 1.0f;
  bool zero_run = true;
};

// Of the formats of quantizer_formats.h, as a block's header says it.
struct ElementStage {
  std::uint32_t block = 0;  // elements that share a scale, whole rows of 32; 0: all
};

// A block whose header the processor has checked (wire::check_block_header). Its payload may hold
// anything.
struct PayloadView {
  const std::byte* payload;  // aligned to 8 bytes
  std::uint32_t payload_bytes;
  std::uint32_t scale_elements;
  std::uint32_t flags;
};

struct DecodeChunk {
  const PayloadView* blocks;  // in the order of addition
  float* out;                 // aligned to 16 bytes
  std::uint32_t* status;      // a DecodeStatus; after an error `out` may be partly written
  std::uint32_t block_count;
  std::uint32_t elements;
};

// What a launch has room for.
struct DecodeRoom {
  std::uint32_t at_once;      // blocks that are expanded before the elements are gone through
  std::uint32_t scale_count;  // the most that a block of the launch has
};
// Of each of these blocks a decoder of elements keeps so much in shared memory.
inline constexpr std::size_t kBodyBytes = 16;

}  // namespace tern::codec::device
