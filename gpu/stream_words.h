#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "gpu/driver.h"

// Words in host memory for which streams of the program wait: a stream goes on as soon as a thread
// of the library says that an operation is complete.
//
// No stream waits for ever. When the daemon dies, lose() lets all go on, and is_lost() tells
// whoever comes behind them.
namespace tern::gpu {

class StreamWords {
 public:
  // Values are below this. The driver compares by the sign of the difference, so that the mark of a
  // loss is at least as large as any of them.
  static constexpr std::uint64_t kLost = std::uint64_t{1} << 62;

  // Requires: `driver` outlives it, and no stream waits any more when it is destroyed.
  static Result<std::unique_ptr<StreamWords>> create(const Driver& driver, std::size_t count);
  ~StreamWords();
  StreamWords(const StreamWords&) = delete;
  StreamWords& operator=(const StreamWords&) = delete;

  std::size_t count() const noexcept { return count_; }

  // What is enqueued on the stream later waits until word `i` is at least `value`.
  // Requires: i < count(), value < kLost.
  Status wait(Stream stream, std::size_t i, std::uint64_t value) const;

  // Thread: any. After lose() nothing changes.
  void release(std::size_t i, std::uint64_t value) noexcept;
  void lose() noexcept;
  bool is_lost(std::size_t i) const noexcept;

 private:
  // A word has a line of its own, so that two that are written at a time do not share one.
  struct alignas(64) Word {
    std::atomic<std::uint64_t> value{0};
  };

  struct Free {
    void operator()(Word* words) const noexcept { std::free(words); }
  };

  StreamWords(const Driver& driver, std::size_t count);

  const Driver& driver_;
  std::size_t count_;
  std::unique_ptr<Word[], Free> words_;  // whole pages: nobody else pins what lies on them
  DeviceAddress address_ = 0;            // 0: not pinned
};

}  // namespace tern::gpu
