#pragma once

#include <cstdint>

#include "base/random.h"

namespace tern::codec {

// What the random draws for one chunk depend on, and nothing else: not time, lanes or kernels.
struct DrawKey {
  std::uint64_t seed = 0;    // of the group
  std::uint64_t tensor = 0;  // a hash of its name
  std::uint64_t use = 0;     // of the tensor
  std::uint32_t node = 0;    // the sender
  bool broadcast_leg = false;
  std::uint64_t chunk = 0;

  constexpr std::uint64_t mixed() const noexcept {
    std::uint64_t key = mixed_key(seed, tensor);
    key = mixed_key(key, use);
    key = mixed_key(key, 2 * std::uint64_t{node} + (broadcast_leg ? 1 : 0));
    return mixed_key(key, chunk);
  }
};

}  // namespace tern::codec
