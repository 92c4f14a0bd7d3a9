#pragma once

namespace tern::daemon {

inline constexpr const char* kVersion = TERN_VERSION;  // of the CMake project

}  // namespace tern::daemon
