#pragma once

// What only the parts of the daemon know of settings: recipes, rules and instruction sets.

#include "base/result.h"
#include "daemon/config/config.h"

namespace tern::daemon {

// Of a configuration that check_config() has found sound. The error names the setting; unreachable:
// another time it may be none.
Status check_settings(const Config& config);
// As a start with `fresh` would, and beside what `running` keeps until a restart.
Status check_reload(const Config& running, const Config& fresh);

}  // namespace tern::daemon
