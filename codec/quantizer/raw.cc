// The values as they are: what follows a sparsifier that has no quantizer behind it.

#include <cstring>

#include "codec/quantizer/implementation.h"

namespace tern::codec::quantizer {
namespace {

Sizes sizes_of(const Params&, std::size_t elements) noexcept { return {0, 4 * elements}; }

std::size_t piece(const Params&) noexcept { return 64; }

bool write(const Params&, const Input& input, std::byte*, std::byte* body) noexcept {
  if (!input.values.empty()) std::memcpy(body, input.values.data(), input.values.size_bytes());
  return true;
}

bool read(const Params&, const std::byte*, const std::byte* body, std::span<float> out) noexcept {
  if (!out.empty()) std::memcpy(out.data(), body, out.size_bytes());
  return true;
}

double no_variance(const Params&, std::size_t) noexcept { return 0.0; }

}  // namespace

const Implementation kRaw = {sizes_of, piece, write, read, no_variance};

}  // namespace tern::codec::quantizer
