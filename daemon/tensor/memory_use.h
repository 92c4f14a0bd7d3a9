#pragma once

#include <atomic>
#include <cstdint>

namespace tern::daemon {

// Which operation a tensor's codec state belongs to. What a residual means depends on the kind of
// operation and on its counts: of an all_reduce it holds what results left out too, and with other
// counts another node adds or sends an element. Set once, by the first block that uses the state.
// Thread: any.
class MemoryUse {
 public:
  struct User {
    std::uint16_t kind = 0;        // the plan's number, never 0
    bool one_leg = false;          // of the plan
    std::uint32_t counts_crc = 0;  // AnnounceBody::counts_crc
    // Rank, of a plan that has one: not compared, since a residual is its node's, whoever the root
    // is.
    std::uint32_t root = kNoRoot;
  };
  static constexpr std::uint32_t kNoRoot = 0xffffffff;

  bool admits(const User& user) const noexcept {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    return word == 0 || same(word, word_of(user));
  }
  // False: it is another's.
  bool take(const User& user) noexcept {
    std::uint64_t word = 0;
    const std::uint64_t mine = word_of(user);
    return word_.compare_exchange_strong(word, mine, std::memory_order_relaxed) || same(word, mine);
  }
  // Of an operation with one leg.
  bool has_one_leg() const noexcept {
    return (word_.load(std::memory_order_relaxed) & kOneLeg) != 0;
  }
  // 0: nobody's yet.
  std::uint16_t kind() const noexcept {
    return static_cast<std::uint16_t>(word_.load(std::memory_order_relaxed) >> 32);
  }
  std::uint32_t counts_crc() const noexcept {
    return static_cast<std::uint32_t>(word_.load(std::memory_order_relaxed));
  }
  // Of the first that used it, or kNoRoot.
  std::uint32_t root() const noexcept {
    return static_cast<std::uint32_t>(word_.load(std::memory_order_relaxed) >> kRootShift) - 1;
  }
  void adopt(const MemoryUse& other) noexcept {
    word_.store(other.word_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t kOneLeg = std::uint64_t{1} << 48;
  static constexpr std::uint32_t kRootShift = 49;  // the root's rank plus 1, less than 2^15
  static std::uint64_t word_of(const User& user) noexcept {
    return std::uint64_t{user.kind} << 32 | user.counts_crc | (user.one_leg ? kOneLeg : 0) |
           std::uint64_t{user.root + 1} << kRootShift;
  }
  static bool same(std::uint64_t one, std::uint64_t other) noexcept {
    return ((one ^ other) << (64 - kRootShift)) == 0;
  }

  std::atomic<std::uint64_t> word_{0};
};

}  // namespace tern::daemon
