#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace tern::daemon {

// How long a thread has been ready to run while others had the processors: what a slow machine
// adds to the thread's time, and the thread can do nothing about. The kernel counts it in the
// second number of the thread's schedstat.
//
// Thread: always the same one, which is the one that it speaks of.
class ProcessorWait {
 public:
  // Another file is for tests.
  explicit ProcessorWait(std::string file = "/proc/thread-self/schedstat")
      : path_(std::move(file)) {}

  // So far; 0 where the kernel does not say. One system call, of one or two microseconds.
  std::uint64_t ns() noexcept;

 private:
  std::string path_;
  bool is_open_ = false;  // or cannot be opened
  Fd file_;
};

}  // namespace tern::daemon
