#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace tern::daemon {

// A table that one thread rewrites now and then and any thread reads whole: a seqlock over 64-bit
// words, so that neither side waits and no reader sees a mixture. What no row has needed takes no
// memory.
template <typename Row, std::size_t kRows>
class SnapshotTable {
  static_assert(std::is_trivially_copyable_v<Row> && sizeof(Row) % 8 == 0);

 public:
  SnapshotTable() : words_(static_cast<Word*>(std::calloc(kRows * kWords, sizeof(Word)))) {
    TERN_CHECK(words_ != nullptr);
  }

  // Writer. Rows beyond the table's size are left out.
  void write(std::span<const Row> rows) noexcept {
    const std::size_t count = rows.size() < kRows ? rows.size() : kRows;
    const std::uint64_t version = version_.load(std::memory_order_relaxed);
    version_.exchange(version + 1, std::memory_order_acq_rel);
    count_.store(count, std::memory_order_release);
    for (std::size_t row = 0; row < count; ++row) {
      std::array<std::uint64_t, kWords> words;
      std::memcpy(words.data(), &rows[row], sizeof(Row));
      for (std::size_t i = 0; i < kWords; ++i) {
        words_[row * kWords + i].store(words[i], std::memory_order_release);
      }
    }
    version_.store(version + 2, std::memory_order_release);
  }

  std::vector<Row> read() const {
    std::vector<Row> rows;
    for (;;) {
      const std::uint64_t before = version_.load(std::memory_order_acquire);
      if (before % 2 != 0) continue;
      rows.resize(count_.load(std::memory_order_acquire));
      for (std::size_t row = 0; row < rows.size(); ++row) {
        std::array<std::uint64_t, kWords> words;
        for (std::size_t i = 0; i < kWords; ++i) {
          words[i] = words_[row * kWords + i].load(std::memory_order_acquire);
        }
        std::memcpy(static_cast<void*>(&rows[row]), words.data(), sizeof(Row));
      }
      if (version_.load(std::memory_order_acquire) == before) return rows;
    }
  }

 private:
  using Word = std::atomic<std::uint64_t>;
  struct Free {
    void operator()(Word* words) const noexcept { std::free(words); }
  };
  static constexpr std::size_t kWords = sizeof(Row) / 8;
  std::atomic<std::uint64_t> version_{0};
  std::atomic<std::uint64_t> count_{0};
  std::unique_ptr<Word[], Free> words_;  // zeroes, which the kernel gives page by page
};

}  // namespace tern::daemon
