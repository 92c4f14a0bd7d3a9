#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tern::wire {

// Of fewer bytes there is no whole block.
inline constexpr std::size_t kLeastFoldedBytes = 1344;

// CRC32C of the longest prefix that is made of whole blocks; what is left is the caller's. The
// register goes in and comes out inverted, as ISA-L has it. Of `left` the function takes off what
// it has covered: nothing where the processor has no carry-less multiplication.
std::uint32_t crc32c_folded(std::span<const std::byte>& left, std::uint32_t inverted) noexcept;

}  // namespace tern::wire
