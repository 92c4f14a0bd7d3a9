#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/quantizer/params.h"

// Values to codes and back, the stage between sparsifier and entropy coder. A quantizer turns k
// finite values into `side` bytes (scales, norms, a codebook) and `body` bytes (the codes); how
// many of each depends on its parameters and k only. It owns no memory, allocates nothing and keeps
// to its spans. The forms are in docs/quantizers.md.
namespace tern::codec::quantizer {

// Foreign parameters are checked by this before anything else here sees them.
bool valid(const Params& params) noexcept;

Sizes sizes(const Params& params, std::size_t elements) noexcept;

// Pieces that begin at a multiple of this may be quantized one by one: the side and body bytes of
// the pieces, each put together, are those of the whole. A multiple of 64; 0: only as a whole.
std::size_t piece_elements(const Params& params) noexcept;

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
