#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/service/disposal.h"

namespace tern::daemon {

// A file that a thread writes which may wait for the disk (Disposal). Its owner waits for nothing,
// and asks later how it went.
//
// Thread: its Disposal's owner's. What was appended is written also when this is gone.
class LateFile {
 public:
  // The path of the `attempt`-th try, from 1 on; empty: there is none left.
  using Names = std::function<std::string(int attempt)>;
  // So much may wait for the disk; more is an error, ENOBUFS.
  static constexpr std::uint64_t kMostWaiting = std::uint64_t{32} << 20;

  // The first of these that is not there yet. None is overwritten.
  static LateFile fresh(Disposal& writing, Names names);
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
  // The error number of the first failure so far, after which nothing is written; 0: none. A fresh
  // file ends before the text that could not be written whole.
  int error() const noexcept;
  // Something of it lies on the disk.
  bool has_begun() const noexcept;
  // It has been finished, and lies there whole or has failed.
  bool is_done() const noexcept;

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
