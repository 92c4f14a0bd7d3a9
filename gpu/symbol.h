#pragma once

#include <dlfcn.h>

#include <cstring>

namespace tern::gpu {

// A function of an open library. False: it has none of this name, and `function` is null.
template <typename Pointer>
bool find_symbol(void* library, const char* name, Pointer& function) noexcept {
  void* const found = dlsym(library, name);
  static_assert(sizeof(found) == sizeof(function));
  std::memcpy(&function, &found, sizeof(function));
  return found != nullptr;
}

}  // namespace tern::gpu
