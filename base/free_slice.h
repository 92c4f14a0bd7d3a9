#pragma once

#include <bit>
#include <cstdint>

namespace tern {

// Of large memory a thread gives no more back to the kernel at once. Until that is done it holds
// the lock of the process's mappings, and others who map memory, or free some, wait for it.
inline constexpr std::uint64_t kFreeSliceBytes = std::uint64_t{2} << 20;

// How many of `bytes` from `begin` on are left when the last slice is given back. Slices begin
// where huge pages do.
inline std::uint64_t without_last_slice(const void* begin, std::uint64_t bytes) noexcept {
  if (bytes == 0) return 0;
  const auto from = std::bit_cast<std::uintptr_t>(begin);
  const std::uintptr_t cut = (from + bytes - 1) / kFreeSliceBytes * kFreeSliceBytes;
  return cut > from ? cut - from : 0;
}

}  // namespace tern
