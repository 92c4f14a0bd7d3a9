#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/service/disposal.h"

namespace tern::daemon {

// A file that a thread writes which may wait for the disk (Disposal). Its owner waits for nothing,
// and asks later how it went.
//
// Thread: its Disposal's owner's. What was appended is written also when this is gone, as long as
// the Disposal is there.
class LateFile {
 public:
  // The path of the `attempt`-th try, from 1 on; empty: there is none left.
  using Names = std::function<std::string(int attempt)>;
  // So much of one, or of those that share a room, may wait for the disk; what is appended then is
  // refused, and all that follows.
  static constexpr std::uint64_t kMostWaiting = std::uint64_t{32} << 20;
  // So many bytes of several files.
  class Room {
   public:
    explicit Room(std::uint64_t bytes = kMostWaiting) : bytes_(bytes) {}
    bool take(std::uint64_t bytes) noexcept {
      if (waiting_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= bytes_) return true;
      give(bytes);
      return false;
    }
    void give(std::uint64_t bytes) noexcept {
      waiting_.fetch_sub(bytes, std::memory_order_relaxed);
    }

   private:
    std::uint64_t bytes_;
    std::atomic<std::uint64_t> waiting_{0};
  };
  // What the owner is told of a disk that does not take what waits for it.
  static constexpr const char* kDiskIsSlow = "the disk does not take what waits for it";

  // The first of these that is not there yet. None is overwritten.
  static LateFile fresh(Disposal& writing, Names names,
                        std::shared_ptr<Room> room = std::make_shared<Room>());
  // It takes this path's place when it is finished, all or nothing. Until then, and if anything
  // fails, what lay there stays.
  static LateFile replacement(Disposal& writing, std::string path);
  LateFile(LateFile&&) noexcept = default;
  LateFile& operator=(LateFile&&) noexcept = default;
  LateFile(const LateFile&) = delete;
  LateFile& operator=(const LateFile&) = delete;

  void append(std::string text);
  // Nothing more comes.
  void finish();
  // Why the file is not whole, as far as is known; empty: it is. A fresh one has the texts before
  // the first that could not be written whole.
  std::string problem() const;
  // Something of it lies on the disk.
  bool has_begun() const noexcept;
  // It has been finished, and lies there whole or has failed.
  bool is_done() const noexcept;
  // Whether all that has been appended lies on the disk, or never will. Thread: any, also when the
  // file is gone.
  std::function<bool()> settled() const;

 private:
  class Shared;
  LateFile(Disposal& writing, std::shared_ptr<Shared> shared);
  void hand_over();

  Disposal* writing_;
  std::shared_ptr<Shared> shared_;
};

// Whom the Disposal that writes files serves: all files are one user's, written one after another.
inline constexpr std::uint32_t kWriter = 0;

}  // namespace tern::daemon
