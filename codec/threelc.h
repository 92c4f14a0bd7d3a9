#pragma once

#include <cstddef>
#include <span>

#include "codec/coding.h"
#include "codec/recipe.h"

// 3LC (Lim, Andersen, Kaminsky, "3LC: Lightweight and Effective Traffic Compression for Distributed
// Machine Learning", MLSys 2019): 3-value quantization with sparsity multiplication, base-3^5
// packing, zero-run coding, error accumulation. The payload form is in docs/codecs.md. Private to
// codec/; the callers use codec.h.
namespace tern::codec {

std::size_t threelc_bound(const Recipe& recipe, std::size_t elements) noexcept;

EncodeResult threelc_encode(const Recipe& recipe, const EncodeRequest& request,
                            const BlockRoom& out) noexcept;

// Requires: check_block_header(block.header) == none, and both spans as long as the header says.
// `own`: with `add`, the f32 that the sum begins with in place of what `out` holds.
DecodeStatus threelc_decode(const BlockView& block, std::span<float> out, bool add,
                            const std::byte* own = nullptr) noexcept;

}  // namespace tern::codec
