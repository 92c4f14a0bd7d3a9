#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>

#include "daemon/lane/lane_exchange.h"
#include "shm/copy_progress.h"
#include "shm/layout.h"

namespace tern::daemon {

// Memory of one operation, send or recv that its client copies while lanes work, as one lane sees
// it: how much of the input is there, and which pieces of the output are listed as delivered.
class MemoryCopy {
 public:
  // A text for errors, and whether there is one.
  class Problem {
   public:
    Problem() = default;
    template <typename... Args>
    explicit Problem(const char* format, Args... args) noexcept {
      std::snprintf(text_, sizeof text_, format, args...);
    }
    explicit operator bool() const noexcept { return text_[0] != '\0'; }
    const char* text() const noexcept { return text_; }

   private:
    char text_[160] = {};
  };

  // None: the memory is used where it is.
  MemoryCopy() = default;
  // REQUIRES: the entry has progress, and has been checked. `client` outlives this.
  MemoryCopy(const shm::SubmitEntry& entry, const shm::CopyProgress& progress, ClientMemory& client,
             std::uint64_t now_ns) noexcept
      : progress_(progress),
        moved_ns_(now_ns),
        shares_down_((entry.flags & shm::kEntrySharesDown) != 0),
        client_(&client) {}

  bool exists() const noexcept { return progress_.exists(); }

  // ---- The input, of `bytes` ----
  std::uint64_t input_bytes() const noexcept { return input_bytes_; }
  // True: its shares come from the last rank's down to the first's (shm::kEntrySharesDown).
  bool shares_down() const noexcept { return shares_down_; }
  // Reads the watermark. True: it has moved. One that says more than there is, or less than it did,
  // is a problem.
  bool look(std::uint64_t bytes, std::uint64_t now_ns, Problem& problem) noexcept {
    const std::uint64_t there = progress_.input_bytes();
    if (there == input_bytes_) return false;
    if (there < input_bytes_ || there > bytes) {
      problem =
          Problem("the watermark of its input says %llu of %llu bytes, after %llu",
                  static_cast<unsigned long long>(there), static_cast<unsigned long long>(bytes),
                  static_cast<unsigned long long>(input_bytes_));
      return true;
    }
    input_bytes_ = there;
    moved_ns_ = now_ns;
    client_->copied_ns.store(now_ns, std::memory_order_relaxed);
    return true;
  }
  // A problem if it has not moved for so long. A copy that has not begun does not stand still while
  // its client copies something else.
  Problem stall(std::uint64_t bytes, std::uint64_t now_ns,
                std::uint64_t timeout_ns) const noexcept {
    std::uint64_t since = moved_ns_;
    if (input_bytes_ == 0) {
      since = std::max(since, client_->copied_ns.load(std::memory_order_relaxed));
    }
    if (now_ns < since + timeout_ns) return {};
    return Problem("for %llu ms its input has stopped at %llu of %llu bytes",
                   static_cast<unsigned long long>(timeout_ns / 1'000'000),
                   static_cast<unsigned long long>(input_bytes_),
                   static_cast<unsigned long long>(bytes));
  }
  // Whoever was copied before it has ended: it has stood still since then at most.
  void begin_next(std::uint64_t now_ns) noexcept {
    if (input_bytes_ == 0) moved_ns_ = now_ns;
  }

  // ---- The output ----
  // Lists a piece, if there is room, in this lane's list. True: a client that sleeps over it is to
  // be woken, which it is for so much of it at a time.
  bool deliver(std::uint32_t lane, const shm::DeliveredRecord& piece) noexcept {
    constexpr std::uint64_t kBellBytes = 512 << 10;
    if (!exists() || records_ >= progress_.shape().records || piece.bytes == 0) return false;
    progress_.deliver(lane, records_++, piece);
    unrung_bytes_ += piece.bytes;
    if (unrung_bytes_ < kBellBytes) return false;
    unrung_bytes_ = 0;
    return true;
  }

 private:
  shm::CopyProgress progress_;      // foreign
  std::uint64_t input_bytes_ = 0;   // that are there, as last read
  std::uint64_t moved_ns_ = 0;      // when that rose last
  std::uint64_t unrung_bytes_ = 0;  // delivered since the client was woken for them
  std::uint32_t records_ = 0;       // in this lane's list
  bool shares_down_ = false;
  ClientMemory* client_ = nullptr;
};

}  // namespace tern::daemon
