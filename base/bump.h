#pragma once

#include <atomic>

namespace tern {

// One writer: a plain load and store is enough.
template <typename T>
void bump(std::atomic<T>& value, T delta) noexcept {
  value.store(value.load(std::memory_order_relaxed) + delta, std::memory_order_relaxed);
}

}  // namespace tern
