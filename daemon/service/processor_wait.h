#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace tern::daemon {

// A thread's time on a processor, how long it has been ready to run while others had the
// processors, and how often it has slept. Ready is what the kernel says in the thread's schedstat,
// and what a slow machine adds to the thread's time, for which the thread can do nothing. A
// hypervisor that takes the processor away for a while adds to none of these: a thread that has
// neither slept, nor run, nor been ready, has been without its machine.
//
// Thread: always the same one, which is the one that it speaks of.
class ProcessorWait {
 public:
  struct Times {
    std::uint64_t run_ns = 0;
    std::uint64_t waited_ns = 0;
    std::uint64_t sleeps = 0;  // voluntary switches
  };

  // Another file is for tests.
  explicit ProcessorWait(std::string file = "/proc/thread-self/schedstat")
      : path_(std::move(file)) {}
  virtual ~ProcessorWait() = default;

  // So far; 0 where the kernel does not say. Three system calls, of about three microseconds.
  virtual Times times() noexcept;
  // These alone, by one of the three.
  virtual std::uint64_t sleeps() noexcept;

 private:
  std::uint64_t waited_ns() noexcept;

  std::string path_;
  bool is_open_ = false;  // or cannot be opened
  Fd file_;
};

}  // namespace tern::daemon
