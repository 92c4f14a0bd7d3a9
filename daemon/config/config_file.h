#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/config/config.h"

namespace tern::daemon {

// Reads TOML into `config`, setting by setting. Every mistake is reported, a line each:
// `file:line:column: what is wrong; what is allowed`. Relations between settings are not checked
// here but by check_config(), when the command line has been read too.
Status apply_config_text(Config& config, std::string_view toml, std::string_view file_name);

Status apply_config_file(Config& config, const std::string& path);

}  // namespace tern::daemon
