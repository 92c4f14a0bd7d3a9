#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace tern::daemon {

// A thread's time on a processor, and how long it has been ready to run while others had the
// processors: what a slow machine adds to the thread's time, and the thread can do nothing about.
// The kernel counts both; they are the first two numbers of the thread's schedstat. The first is as
// old as the kernel's last tick or switch.
//
// Thread: always the same one, which is the one that it speaks of.
class ProcessorWait {
 public:
  struct Times {
    std::uint64_t run_ns = 0;
    std::uint64_t waited_ns = 0;
  };

  // Another file is for tests.
  explicit ProcessorWait(std::string file = "/proc/thread-self/schedstat")
      : path_(std::move(file)) {}

  // So far; 0 where the kernel does not say. One system call, of about two microseconds.
  Times times() noexcept;

 private:
  std::string path_;
  bool is_open_ = false;  // or cannot be opened
  Fd file_;
};

}  // namespace tern::daemon
