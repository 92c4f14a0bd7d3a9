#pragma once

#include <string>

#include "codec/device/emulation/site.h"

namespace tern::codec::device::emulation {

// What a launch does that a kernel must not. Thrown where it happens, and ends the launch.
struct Finding {
  std::string text;
};

// `file.cuh:12`, without the folders.
std::string place_text(const Site& site);

[[noreturn]] void report(const std::string& what, const Site& site);

}  // namespace tern::codec::device::emulation
