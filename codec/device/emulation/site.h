#pragma once

// Where in a kernel's source an access or a barrier stands.
namespace tern::codec::device::emulation {

struct Site {
  const char* file;
  int line;

  // As a default argument: the place of the call.
  static constexpr Site here(const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) noexcept {
    return {file, line};
  }

  friend constexpr bool operator==(const Site& a, const Site& b) noexcept {
    return a.line == b.line && (a.file == b.file || __builtin_strcmp(a.file, b.file) == 0);
  }
};

}  // namespace tern::codec::device::emulation
