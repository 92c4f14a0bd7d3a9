#pragma once

#include <cstddef>
#include <span>

#include "codec/coding.h"
#include "codec/recipe.h"

// The bf16 compressor: each element rounded to nearest even. Private to codec/.
namespace tern::codec {

EncodeResult bf16_encode(const Recipe& recipe, const EncodeRequest& request,
                         const BlockRoom& out) noexcept;

// Requires: payload.size() == 2 * out.size().
DecodeStatus bf16_decode(std::span<const std::byte> payload, std::span<float> out,
                         bool add) noexcept;

}  // namespace tern::codec
