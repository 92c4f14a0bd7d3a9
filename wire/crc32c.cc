#include "wire/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

#include "wire/crc32c_folded.h"

namespace tern::wire {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
  // ISA-L works on the inverted register, takes a length of type int and a pointer to non-const
  // that it only reads.
  constexpr std::size_t kLongest = std::size_t{1} << 30;
  std::uint32_t inverted = crc32c_folded(bytes, ~crc);
  while (!bytes.empty()) {
    const std::size_t length = std::min(bytes.size(), kLongest);
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    inverted = crc32_iscsi(data, static_cast<int>(length), inverted);
    bytes = bytes.subspan(length);
  }
  return ~inverted;
}

}  // namespace tern::wire
