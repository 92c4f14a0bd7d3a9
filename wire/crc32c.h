#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tern::wire {

// CRC32C (Castagnoli), by ISA-L or by our own kernel for long payloads, whichever is faster on this
// processor. `crc` continues an earlier result; crc32c("123456789") is 0xe3069283.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

}  // namespace tern::wire
