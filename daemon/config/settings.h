#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "daemon/config/config.h"

namespace tern::daemon {

enum class SettingKind : std::uint8_t {
  flag,      // true or false
  count,     // a whole number
  size,      // bytes, "256KiB"
  duration,  // nanoseconds, "500ms"
  text,      // min and max are its length
  choice,    // text, one of `choices`
  endpoint,  // "host:port"; min 0: may be empty
  mode,      // octal text, "0660"
  id_list,   // a list of user or group numbers
};

using SettingField =
    std::variant<bool Config::*, std::uint32_t Config::*, std::uint64_t Config::*,
                 std::string Config::*, Endpoint Config::*, std::vector<std::uint32_t> Config::*>;

// One row of the table: all that is known about a setting but its default, which is the initialiser
// of the field in Config.
struct Setting {
  std::string_view section;  // the TOML table
  std::string_view name;     // the TOML key; `--name` on the command line, with - for _
  SettingKind kind = SettingKind::flag;
  SettingField field;
  struct Range {
    std::uint64_t min = 0;
    std::uint64_t max = 0;
  } range = {};
  std::string_view choices = {};  // "a|b|c"; only of a choice
  bool power_of_two = false;
  bool reloadable = false;  // takes effect on SIGHUP, without a restart
  std::string_view help;    // one sentence
};

// All settings, section by section.
std::span<const Setting> settings();

// nullptr if no setting has the name.
const Setting* find_setting(std::string_view name);

// The known name that is closest to `name`; empty if none is close.
std::string_view nearest_setting(std::string_view name);

// "16KiB to 4MiB, a power of two": what the value may be, for errors and documents.
std::string allowed_values(const Setting& setting);

// The value in the text form that set_from_text reads.
std::string value_text(const Config& config, const Setting& setting);

// The value as it is written in TOML, with quotes where they belong.
std::string value_toml(const Config& config, const Setting& setting);

// Reads `text` into the field. The error is "what is wrong; what is allowed", without the name.
Status set_from_text(Config& config, const Setting& setting, std::string_view text);

// The same for a number that the source gave as a number. Requires: kind is count or size.
Status set_from_number(Config& config, const Setting& setting, std::uint64_t value);

// Requires: kind is id_list.
Status set_ids(Config& config, const Setting& setting, std::vector<std::uint32_t> ids);

// What holds between settings: checked once, after file and command line. The error names the
// settings.
Status check_config(const Config& config);

// "10.0.0.7=tcp,10.0.0.8=rdma" as (address, transport). The error names the entry that is wrong.
Result<std::map<std::string, std::string>> parse_peer_transports(std::string_view text);

// One setting that differs between two configurations, in its text form.
struct SettingChange {
  std::string_view name;
  std::string before;
  std::string after;
  bool reloadable = false;
};

// All differences, in the order of the table.
std::vector<SettingChange> config_changes(const Config& before, const Config& after);

// `running` with the reloadable settings of `fresh`.
Config with_reloadable(const Config& running, const Config& fresh);

}  // namespace tern::daemon
