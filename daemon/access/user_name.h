#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tern::daemon {

// The number of a user by name, or as it is where the text is a number. None: this machine has no
// such user, or cannot say. Asks the name service, and may wait for it.
std::optional<std::uint32_t> user_named(const std::string& text);

}  // namespace tern::daemon
