#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "daemon/config/config.h"

namespace tern::daemon {

// What `ternd ...` asks for.
struct CommandLine {
  Config config;            // defaults, then the file, then the command line; checked
  std::string config_file;  // empty: none was given
  // Set by --help, --version and the --print options: print this and end with success. The config
  // is then of no use.
  std::optional<std::string> print;
  bool print_counters = false;  // a page that is made elsewhere: counters_markdown()
};

// `arguments` are those after the program's name. Every setting is an option, `--op-timeout 5s` or
// `--op-timeout=5s`; given twice, the last counts. Errors are ready to print, one mistake a line.
Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments,
                                       std::string_view version);

}  // namespace tern::daemon
