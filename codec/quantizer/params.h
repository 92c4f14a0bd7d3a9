#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/block.h"

// What a quantizer is told, for its callers and for each of them.
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

struct Sizes {
  std::size_t side = 0;
  std::size_t body = 0;
};

struct Input {
  std::span<const float> values;  // finite, and nobody else writes to them
  std::uint64_t key = 0;          // of the random draws (base/random.h)
  std::uint32_t position = 0;     // of values[0] among the draws
  // True: the decoded values shall be near to the values (error feedback and EF21 need a
  // contraction). False: their expectation shall be the values, where the quantizer can do that.
  bool contractive = false;
  // lloyd: the levels of the last step, updated; null or zeros: none yet.
  float* codebook = nullptr;
};

}  // namespace tern::codec::quantizer
