// Symmetric integers of 2 to 8 bits with one f32 step per block (integer_rule.h has the
// arithmetic). Side: the steps. Body: the codes, packed in the order of bit_order.h.
#include <algorithm>

#include "codec/quantizer/bit_order.h"
#include "codec/quantizer/block_layout.h"
#include "codec/quantizer/implementation.h"
#include "codec/quantizer/integer_kernels.h"
#include "codec/quantizer/integer_rule.h"
#include "codec/target/highway_table.h"

namespace tern::codec::quantizer {
namespace {

const IntegerKernels& kernels() noexcept { return target::choose(integer_highway, kIntegerScalar); }

bool is_sound(const Params& params) noexcept {
  return params.bits >= 2 && params.bits <= 8 && valid_block(params.block);
}

Sizes sizes_of(const Params& params, std::size_t elements) noexcept {
  return {sizeof(float) * block_count(elements, params.block), packed_bytes(elements, params.bits)};
}

std::size_t piece(const Params& params) noexcept { return block_piece(params.block); }

// A value between two levels adds at most step^2/4, step = amax/L, and amax^2 is at most the sum of
// the squares of its block.
double stochastic_omega(const Params& params, std::size_t elements) noexcept {
  const double level = largest_level(params.bits);
  const std::size_t block = params.block == 0 ? elements : params.block;
  return static_cast<double>(block) / (4.0 * level * level);
}

// A contraction is asked for: unbiased rounding is one in expectation while omega < 1, with delta =
// 1 - omega; to nearest always is one, because the error of a value is at most the value, and that
// of the largest is none.
bool draws_at(const Params& params, const Input& input) noexcept {
  return params.stochastic &&
         (!input.contractive || stochastic_omega(params, input.values.size()) < 1.0);
}

bool write(const Params& params, const Input& input, std::byte* side, std::byte* body) noexcept {
  if (!is_sound(params)) return false;
  const IntegerLayout layout{params.bits, params.block == 0 ? input.values.size() : params.block};
  const IntegerDraws draws{draws_at(params, input), input.key, input.position};
  kernels().quantize(layout, draws, input.values, {side, body});
  return true;
}

bool read(const Params& params, const std::byte* side, const std::byte* body,
          std::span<float> out) noexcept {
  if (!is_sound(params)) return false;
  const IntegerLayout layout{params.bits, params.block == 0 ? out.size() : params.block};
  return kernels().dequantize(layout, side, body, out);
}

double omega_of(const Params& params, std::size_t elements) noexcept {
  return params.stochastic ? stochastic_omega(params, elements) : -1.0;
}

}  // namespace

const Implementation kInteger = {sizes_of, piece, write, read, omega_of};

}  // namespace tern::codec::quantizer
