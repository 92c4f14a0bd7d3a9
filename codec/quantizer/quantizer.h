#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/block.h"

// Values to codes and back, the stage between sparsifier and entropy coder. A quantizer turns k
// finite values into `side` bytes (scales, norms, a codebook) and `body` bytes (the codes); how
// many of each depends on its parameters and k only. It owns no memory, allocates nothing and keeps
// to its spans. The forms are in docs/quantizers.md.
namespace tern::codec::quantizer {

using Kind = wire::QuantizerId;

// What a reader has to know to undo it; carried in the block's header.
struct Params {
  Kind kind = Kind::raw;
  std::uint8_t bits = 0;     // int, lloyd: per code; bitmask: mantissa bits that are kept
  std::uint16_t levels = 0;  // qsgd: positive levels
  std::uint32_t block = 0;   // elements that share a scale or norm; 0: all
  // From here on for the writer only.
  bool stochastic = false;  // int
  bool two_norm = false;    // qsgd: Euclidean norm instead of the largest magnitude
  bool rounding = true;     // bitmask: to nearest even instead of towards zero
  float clip = 0.0f;        // terngrad: at this many standard deviations; 0: not

  friend bool operator==(const Params&, const Params&) = default;
};

// Foreign parameters are checked by this before anything else here sees them.
bool valid(const Params& params) noexcept;

struct Sizes {
  std::size_t side = 0;
  std::size_t body = 0;
};
Sizes sizes(const Params& params, std::size_t elements) noexcept;

// Pieces that begin at a multiple of this may be quantized one by one: the side and body bytes of
// the pieces, each put together, are those of the whole. A multiple of 64; 0: only as a whole.
std::size_t piece_elements(const Params& params) noexcept;

struct Input {
  std::span<const float> values;  // finite, and nobody else writes to them
  std::uint64_t key = 0;          // of the random draws (base/random.h)
  std::uint32_t position = 0;     // of values[0] among the draws
  // True: the decoded values shall be near to the values (error feedback and EF21 need a
  // contraction). False: their expectation shall be the values, where the quantizer can do that.
  bool contractive = false;
  float* codebook =
      nullptr;  // lloyd: the levels of the last step, updated; null or zeros: none yet
};

// False: a value is beyond what the format can hold; what was written means nothing.
bool quantize(const Params& params, const Input& input, std::byte* side, std::byte* body) noexcept;

// Both spans are foreign bytes of sizes(params, out.size()). False: they are no quantizer's output
// (a scale that is NaN, infinite or negative, a code that does not exist).
bool dequantize(const Params& params, const std::byte* side, const std::byte* body,
                std::span<float> out) noexcept;

// Unbiased quantizers: E||Q(x) - x||^2 <= omega ||x||^2 for every x of this many elements.
// Negative: biased.
double omega(const Params& params, std::size_t elements) noexcept;

}  // namespace tern::codec::quantizer
