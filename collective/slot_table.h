#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tern::collective {

// Slots by number, as many as were ever in use at once. A slot that is taken is as a new one.
// References end with take().
template <typename Slot>
class SlotTable {
 public:
  std::uint32_t take() {
    if (free_.empty()) grow();
    const std::uint32_t index = free_.back();
    free_.pop_back();
    slots_[index].second = true;
    return index;
  }
  void give(std::uint32_t index) noexcept {
    TERN_CHECK(slots_[index].second);
    slots_[index] = {};
    free_.push_back(index);
  }

  Slot& operator[](std::uint32_t index) noexcept { return slots_[index].first; }
  const Slot& operator[](std::uint32_t index) const noexcept { return slots_[index].first; }
  bool in_use(std::uint32_t index) const noexcept {
    return index < slots_.size() && slots_[index].second;
  }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }
  std::uint32_t used() const noexcept {
    return static_cast<std::uint32_t>(slots_.size() - free_.size());
  }

 private:
  static constexpr std::size_t kFirst = 16;

  void grow() {
    const std::size_t before = slots_.size();
    slots_.resize(before == 0 ? kFirst : 2 * before);
    free_.reserve(slots_.size());
    for (std::size_t i = slots_.size(); i > before; --i) {
      free_.push_back(static_cast<std::uint32_t>(i - 1));
    }
  }

  std::vector<std::pair<Slot, bool>> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace tern::collective
