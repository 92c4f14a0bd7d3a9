#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tern {

// A small value that any thread replaces and any thread reads whole: a seqlock over 64-bit words.
// Nobody waits: who meets another that is just writing is told so.
template <typename T>
class Versioned {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // False: another thread is writing, and the value is not written.
  bool try_write(const T& value) noexcept {
    std::uint64_t version = version_.load(std::memory_order_relaxed);
    if (version % 2 != 0 ||
        !version_.compare_exchange_strong(version, version + 1, std::memory_order_acq_rel)) {
      return false;
    }
    std::array<std::uint64_t, kWords> words{};
    std::memcpy(words.data(), &value, sizeof(T));
    // Release: who reads one of the new words finds the version changed.
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
    return true;
  }

  // False: there is none yet, or it is just being written.
  bool try_read(T& value) const noexcept {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    if (version == 0 || version % 2 != 0) return false;
    std::array<std::uint64_t, kWords> words;
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    if (version_.load(std::memory_order_acquire) != version) return false;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
    return true;
  }

 private:
  static constexpr std::size_t kWords = (sizeof(T) + 7) / 8;
  std::atomic<std::uint64_t> version_{0};  // odd: being written
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

}  // namespace tern
