#pragma once

#include <cstddef>
#include <span>

#include "codec/workspace.h"
#include "wire/block.h"

namespace tern::codec {

// The codes in a staged block that was encoded without an entropy coder: the bytes that one would
// work on. Of blocks that have none, or that are damaged, nothing. For training codebooks.
std::span<const std::byte> block_codes(const wire::BlockHeader& header,
                                       std::span<const std::byte> payload,
                                       Workspace& workspace) noexcept;

}  // namespace tern::codec
