#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "plan/plans.h"

namespace tern::daemon {

// How many operations of each kind have succeeded on a lane: one number for each plan that this
// process knows, in the order of plan::known(). Written by the lane, read by anybody.
class KindCounters {
 public:
  KindCounters() = default;
  KindCounters(const KindCounters&) = delete;
  KindCounters& operator=(const KindCounters&) = delete;

  // From now on there, in memory that others may read after our death. REQUIRES: a word for each
  // plan, all zero; they outlive this. Thread: before the lane's begins.
  void count_in(std::span<std::uint64_t> words) noexcept { words_ = words; }

  // REQUIRES, of both: the number of a plan that this process knows.
  void count(std::uint16_t kind) noexcept {
    const std::atomic_ref<std::uint64_t> word(word_of(kind));
    word.store(word.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  std::uint64_t succeeded(std::uint16_t kind) const noexcept {
    return std::atomic_ref<std::uint64_t>(word_of(kind)).load(std::memory_order_relaxed);
  }

 private:
  std::uint64_t& word_of(std::uint16_t kind) const noexcept {
    std::size_t place = 0;
    while (place < plan::known().size() && plan::known()[place]->number != kind) ++place;
    TERN_CHECK(place < plan::known().size());
    return words_[place];
  }

  std::array<std::uint64_t, plan::kMaxPlans> own_{};
  std::span<std::uint64_t> words_{own_};
};

}  // namespace tern::daemon
