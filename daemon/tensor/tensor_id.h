#pragma once

#include <cstdint>
#include <string_view>

#include "shm/sharding.h"

namespace tern::daemon {

// FNV-1a over name and generation: the same on all nodes, and another one when a name is declared
// again, so that uses of the old and the new declaration cannot be mixed up. The bits that choose
// the owners of chunks come from the name alone, so that residuals fit the next declaration.
inline std::uint64_t tensor_id(std::string_view name, std::uint32_t generation) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const char c : name) mix(static_cast<unsigned char>(c));
  mix(0);
  const std::uint64_t of_name = hash;
  for (int shift = 0; shift < 32; shift += 8) mix(static_cast<unsigned char>(generation >> shift));
  hash = (hash & ~shm::kSpreadMask) | (of_name & shm::kSpreadMask);
  return hash == 0 ? 1 : hash;
}

}  // namespace tern::daemon
