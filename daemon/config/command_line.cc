#include "daemon/config/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <map>

#include "daemon/config/config_file.h"
#include "daemon/config/documents.h"
#include "daemon/config/settings.h"

namespace tern::daemon {
namespace {

struct Given {
  std::string config_file;
  bool help = false;
  bool version = false;
  bool sample_config = false;
  bool settings_markdown = false;
  bool settings_manual = false;
  bool counters_markdown = false;
  std::map<std::string_view, std::string> values;  // by name of the setting
};

std::string option_name(std::string_view setting) {
  std::string name(setting);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string type_name(const Setting& setting) {
  switch (setting.kind) {
    case SettingKind::flag:
      return "BOOL";
    case SettingKind::count:
      return "COUNT";
    case SettingKind::size:
      return "SIZE";
    case SettingKind::duration:
      return "TIME";
    case SettingKind::text:
      return "TEXT";
    case SettingKind::choice:
      return std::string(setting.choices);
    case SettingKind::endpoint:
      return "HOST:PORT";
    case SettingKind::mode:
      return "OCTAL";
    case SettingKind::id_list:
      return "ID,ID,...";
  }
  return "TEXT";
}

void add_settings(CLI::App& app, Given& given) {
  const Config defaults;
  for (const Setting& row : settings()) {
    app.add_option_function<std::string>(
           "--" + option_name(row.name),
           [&given, &row](const std::string& text) { given.values[row.name] = text; },
           std::string(row.help))
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->type_name(type_name(row))
        ->default_str(value_text(defaults, row))
        ->group("[" + std::string(row.section) + "]");
  }
}

// An option may be spelled like the setting, `--op_timeout`.
std::string with_hyphens(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  const auto name_end = std::find(argument.begin(), argument.end(), '=');
  std::replace(argument.begin(), name_end, '_', '-');
  return argument;
}

Status apply_values(Config& config, const Given& given) {
  std::string mistakes;
  for (const auto& [name, text] : given.values) {
    const auto status = set_from_text(config, *find_setting(name), text);
    if (status) continue;
    if (!mistakes.empty()) mistakes += '\n';
    mistakes += fmt::format("--{}: {}", option_name(name), status.error().text);
  }
  if (mistakes.empty()) return {};
  return fail(Errc::invalid_argument, std::move(mistakes));
}

std::string unknown_argument(const std::string& argument) {
  if (!argument.starts_with("--")) {
    return fmt::format("{}: is not an option; `ternd --help` lists them", argument);
  }
  std::string name = argument.substr(2, argument.find('=') - 2);
  std::replace(name.begin(), name.end(), '-', '_');
  const std::string_view nearest = nearest_setting(name);
  if (nearest.empty())
    return fmt::format("{}: unknown option; `ternd --help` lists them", argument);
  return fmt::format("{}: unknown option; did you mean --{}?", argument, option_name(nearest));
}

}  // namespace

Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments,
                                       std::string_view version) {
  Given given;
  CLI::App app("The Tern daemon of this node. Settings come from the file, then from options.",
               "ternd");
  app.set_help_flag();
  app.allow_extras();
  app.add_flag("-h,--help", given.help, "Print this and exit");
  app.add_flag("--version", given.version, "Print the version and exit");
  app.add_option("--config", given.config_file, "File of settings, in TOML")->type_name("FILE");
  app.add_flag("--print-sample-config", given.sample_config,
               "Print a file of all settings with their defaults and exit");
  app.add_flag("--print-settings-markdown", given.settings_markdown,
               "Print the page of all settings and exit");
  app.add_flag("--print-settings-manual", given.settings_manual,
               "Print the manual page of all settings and exit");
  app.add_flag("--print-counters-markdown", given.counters_markdown,
               "Print the page of all counters, metrics and trace events and exit");
  add_settings(app, given);
  try {
    // CLI11 takes arguments from the back.
    std::vector<std::string> reversed;
    std::transform(arguments.rbegin(), arguments.rend(), std::back_inserter(reversed),
                   with_hyphens);
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    return fail(Errc::invalid_argument, fmt::format("{}; `ternd --help` explains", error.what()));
  }
  if (const auto extras = app.remaining(); !extras.empty()) {
    return fail(Errc::invalid_argument, unknown_argument(extras.front()));
  }

  CommandLine line;
  line.config_file = given.config_file;
  if (given.help) line.print = app.help();
  if (given.version) line.print = fmt::format("ternd {}\n", version);
  if (given.sample_config) line.print = sample_config();
  if (given.settings_markdown) line.print = settings_markdown();
  if (given.settings_manual) line.print = settings_manual(version);
  line.print_counters = given.counters_markdown;
  if (line.print || line.print_counters) return line;

  if (!given.config_file.empty()) {
    if (auto status = apply_config_file(line.config, given.config_file); !status) {
      return tl::unexpected(status.error());
    }
  }
  if (auto status = apply_values(line.config, given); !status)
    return tl::unexpected(status.error());
  if (auto status = check_config(line.config); !status) return tl::unexpected(status.error());
  return line;
}

}  // namespace tern::daemon
