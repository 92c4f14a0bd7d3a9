#include "daemon/service/processor_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace tern::daemon {

ProcessorWait::Times ProcessorWait::times() noexcept {
  // Here and not where it is made: the thread that opens the file is the one that it is about.
  if (!is_open_) file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  is_open_ = true;
  if (!file_) return {};
  std::array<char, 96> bytes;  // three numbers of 64 bits
  const ssize_t count = ::pread(file_.get(), bytes.data(), bytes.size(), 0);
  const char* const end = bytes.data() + std::max<ssize_t>(count, 0);
  Times times;
  const auto [next, error] = std::from_chars(bytes.data(), end, times.run_ns);
  if (error != std::errc() || next == end) return {};
  std::from_chars(next + 1, end, times.waited_ns);
  return times;
}

}  // namespace tern::daemon
