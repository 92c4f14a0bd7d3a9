#include "daemon/service/processor_wait.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <system_error>

namespace tern::daemon {

ProcessorWait::Times ProcessorWait::times() noexcept {
  Times times;
  // The schedstat's own number of it is as old as the kernel's last tick.
  timespec run{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &run) == 0) {
    times.run_ns = static_cast<std::uint64_t>(run.tv_sec) * 1'000'000'000 +
                   static_cast<std::uint64_t>(run.tv_nsec);
  }
  times.waited_ns = waited_ns();
  times.sleeps = sleeps();
  return times;
}

std::uint64_t ProcessorWait::sleeps() noexcept {
  rusage usage{};
  if (::getrusage(RUSAGE_THREAD, &usage) != 0) return 0;
  return static_cast<std::uint64_t>(usage.ru_nvcsw);
}

// The second of three numbers.
std::uint64_t ProcessorWait::waited_ns() noexcept {
  // Here and not where it is made: the thread that opens the file is the one that it is about.
  if (!is_open_) file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  is_open_ = true;
  if (!file_) return 0;
  std::array<char, 96> bytes;  // three numbers of 64 bits
  const ssize_t count = ::pread(file_.get(), bytes.data(), bytes.size(), 0);
  const char* const end = bytes.data() + std::max<ssize_t>(count, 0);
  std::uint64_t run_ns = 0, waited_ns = 0;
  const auto [next, error] = std::from_chars(bytes.data(), end, run_ns);
  if (error != std::errc() || next == end) return 0;
  std::from_chars(next + 1, end, waited_ns);
  return waited_ns;
}

}  // namespace tern::daemon
