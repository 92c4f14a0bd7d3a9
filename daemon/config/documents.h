#pragma once

#include <string>
#include <string_view>

namespace tern::daemon {

// ternd.toml with every setting, commented out at its default and explained.
std::string sample_config();

// docs/settings.md.
std::string settings_markdown();

// The manual page ternd.toml(5).
std::string settings_manual(std::string_view version);

}  // namespace tern::daemon
