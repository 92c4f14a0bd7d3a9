#pragma once

// `ternctl pki`: certificates and keys for the links between nodes. Works without a daemon.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "base/result.h"

namespace tern::ctl {

// What was asked for; its result is what is printed.
using PkiAction = std::function<Result<std::string>()>;

// `action` is set when one of the commands is parsed.
void add_pki_commands(CLI::App& app, PkiAction& action);

}  // namespace tern::ctl
