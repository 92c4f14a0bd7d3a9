#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace tern::daemon {

// A table that one thread rewrites now and then and any thread reads whole: a seqlock over 64-bit
// words, so that neither side waits and no reader sees a mixture. What no row has needed takes no
// memory.
template <typename Row, std::size_t kRows>
class SnapshotTable {
  static_assert(std::is_trivially_copyable_v<Row> && sizeof(Row) % 8 == 0);

 public:
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
        word(row, i).store(words[i], std::memory_order_release);
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
          words[i] = word(row, i).load(std::memory_order_acquire);
        }
        std::memcpy(static_cast<void*>(&rows[row]), words.data(), sizeof(Row));
      }
      if (version_.load(std::memory_order_acquire) == before) return rows;
    }
  }

 private:
  static constexpr std::size_t kWords = sizeof(Row) / 8;

  std::atomic_ref<std::uint64_t> word(std::size_t row, std::size_t i) const noexcept {
    return std::atomic_ref(words_[row * kWords + i]);
  }

  std::atomic<std::uint64_t> version_{0};
  std::atomic<std::uint64_t> count_{0};
  // Of no value before they are written: so the kernel gives a large table page by page.
  std::unique_ptr<std::uint64_t[]> words_ =
      std::make_unique_for_overwrite<std::uint64_t[]>(kRows * kWords);
};

}  // namespace tern::daemon
