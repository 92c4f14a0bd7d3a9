#include "daemon/service/processor_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

namespace tern::daemon {

std::uint64_t ProcessorWait::ns() noexcept {
  // Here and not where it is made: the thread that opens the file is the one that it is about.
  if (!is_open_) file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  is_open_ = true;
  if (!file_) return 0;
  std::array<char, 96> bytes;  // three numbers of 64 bits
  const ssize_t count = ::pread(file_.get(), bytes.data(), bytes.size(), 0);
  const std::string_view text(bytes.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  const std::size_t space = text.find(' ');
  std::uint64_t waited_ns = 0;
  if (space != std::string_view::npos) {
    std::from_chars(text.data() + space + 1, text.data() + text.size(), waited_ns);
  }
  return waited_ns;
}

}  // namespace tern::daemon
