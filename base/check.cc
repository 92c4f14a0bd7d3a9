#include "base/check.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/result.h"

namespace tern {

void check_failed(const char* file, int line, const char* expression) noexcept {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, expression);
  std::abort();
}

tl::unexpected<Error> fail_errno(Errc code, std::string text, int error_number) {
  text += ": ";
  text += std::strerror(error_number);
  return fail(code, std::move(text));
}

}  // namespace tern
