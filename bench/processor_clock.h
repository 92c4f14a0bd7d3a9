#pragma once

#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tern::bench {

// What all threads of a process have used of processors so far, in user and kernel.
class ProcessorClock {
 public:
  // 0: this process. Throws where there is no such process.
  explicit ProcessorClock(pid_t process) {
    if (process != 0 && ::clock_getcpuclockid(process, &clock_) != 0) {
      throw std::runtime_error("there is no process " + std::to_string(process));
    }
  }

  // 0 after the process has ended.
  std::uint64_t now_ns() const noexcept {
    timespec time{};
    if (::clock_gettime(clock_, &time) != 0) return 0;
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(time.tv_nsec);
  }

 private:
  clockid_t clock_ = CLOCK_PROCESS_CPUTIME_ID;
};

}  // namespace tern::bench
