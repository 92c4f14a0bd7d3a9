#pragma once

#include <string>

namespace tern::e2e {

// All files of an archive by `ternctl dump`, one after the other, each below a line with its name.
// `into` is a new folder to unpack it to.
std::string unpacked(const std::string& archive, const std::string& into);

}  // namespace tern::e2e
