#pragma once

namespace tern {

// Prints where and what, then aborts: for defects of our own code only, never for foreign bytes.
[[noreturn, gnu::cold]] void check_failed(const char* file, int line,
                                          const char* expression) noexcept;

}  // namespace tern

// Always on. A broken invariant must not become a wrong result.
#define TERN_CHECK(expression)                        \
  (__builtin_expect(static_cast<bool>(expression), 1) \
       ? static_cast<void>(0)                         \
       : ::tern::check_failed(__FILE__, __LINE__, #expression))
