#pragma once

#include <atomic>
#include <cstdint>

namespace tern::daemon {

// Which operation a tensor's codec state belongs to. What a residual means depends on the kind of
// operation and on its counts: of an all_reduce it holds what results left out too, and with other
// counts another node adds an element. Set once, by the first block that uses the state. Thread:
// any.
class MemoryUse {
 public:
  // `kind`: shm::OpKind; `counts_crc`: AnnounceBody::counts_crc.
  bool admits(std::uint16_t kind, std::uint32_t counts_crc) const noexcept {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    return word == 0 || word == word_of(kind, counts_crc);
  }
  // False: it is another's.
  bool take(std::uint16_t kind, std::uint32_t counts_crc) noexcept {
    std::uint64_t word = 0;
    const std::uint64_t mine = word_of(kind, counts_crc);
    return word_.compare_exchange_strong(word, mine, std::memory_order_relaxed) || word == mine;
  }
  // The kind that has it; 0: none yet.
  std::uint16_t kind() const noexcept {
    return static_cast<std::uint16_t>(word_.load(std::memory_order_relaxed) >> 32);
  }
  void adopt(const MemoryUse& other) noexcept {
    word_.store(other.word_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

 private:
  static std::uint64_t word_of(std::uint16_t kind, std::uint32_t counts_crc) noexcept {
    return std::uint64_t{kind} << 32 | counts_crc;
  }

  std::atomic<std::uint64_t> word_{0};
};

}  // namespace tern::daemon
