#pragma once

#include <cstddef>
#include <span>

namespace tern::daemon {

// So that the guard of a client's memory sees which pages cannot be had.
inline void touch_pages(std::span<const std::byte> memory) noexcept {
  constexpr std::size_t kPageBytes = 4096;
  const auto touch = [&](std::size_t at) {
    (void)*static_cast<const volatile std::byte*>(memory.data() + at);
  };
  for (std::size_t at = 0; at < memory.size(); at += kPageBytes) touch(at);
  if (!memory.empty()) touch(memory.size() - 1);
}

}  // namespace tern::daemon
