#pragma once

#include <string>

namespace tern::daemon {

// ternd.toml with every setting, commented out at its default and explained.
std::string sample_config();

// docs/settings.md.
std::string settings_markdown();

}  // namespace tern::daemon
