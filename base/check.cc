#include "base/check.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/result.h"

namespace tern {

void check_failed(const char* file, int line, const char* expression) noexcept {
  char text[512];
  const int length =
      std::snprintf(text, sizeof text, "%s:%d: broken invariant: %s\n", file, line, expression);
  // Not by stdio, whose lock a thread may have that nobody takes the text of, and only what has
  // room: whatever becomes of the text, the process ends.
  pollfd entry{STDERR_FILENO, POLLOUT, 0};
  if (length > 0 && ::poll(&entry, 1, 0) > 0) {
    const auto bytes = std::min(static_cast<std::size_t>(length), sizeof text - 1);
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, bytes);
  }
  std::abort();
}

tl::unexpected<Error> fail_errno(Errc code, std::string text, int error_number) {
  text += ": ";
  text += std::strerror(error_number);
  return fail(code, std::move(text));
}

}  // namespace tern
