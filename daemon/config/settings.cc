#include "daemon/config/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "daemon/config/units.h"

namespace tern::daemon {
namespace {

template <typename Value>
Value& field(Config& config, const Setting& setting) {
  const auto* const member = std::get_if<Value Config::*>(&setting.field);
  TERN_CHECK(member != nullptr);
  return config.**member;
}

template <typename Value>
const Value& field(const Config& config, const Setting& setting) {
  const auto* const member = std::get_if<Value Config::*>(&setting.field);
  TERN_CHECK(member != nullptr);
  return config.**member;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

tl::unexpected<Error> refuse(const Setting& setting, std::string_view what) {
  return fail(Errc::invalid_argument,
              fmt::format("{}; allowed: {}", what, allowed_values(setting)));
}

Status set_text(Config& config, const Setting& setting, std::string_view text) {
  if (text.size() < setting.range.min) return refuse(setting, "is empty");
  if (text.size() > setting.range.max) {
    return refuse(setting, fmt::format("has {} characters", text.size()));
  }
  // Control characters would garble logs and tables, and a zero would cut a path short.
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' '; })) {
    return refuse(setting, "has a control character");
  }
  field<std::string>(config, setting) = text;
  return {};
}

Status set_choice(Config& config, const Setting& setting, std::string_view text) {
  const auto choices = split(setting.choices, '|');
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    return refuse(setting, fmt::format("\"{}\" is not a choice", text));
  }
  field<std::string>(config, setting) = text;
  return {};
}

Status set_endpoint(Config& config, const Setting& setting, std::string_view text) {
  if (text.empty() && setting.range.min == 0) {
    field<Endpoint>(config, setting) = {};
    return {};
  }
  auto endpoint = parse_endpoint(text);
  if (!endpoint) return tl::unexpected(endpoint.error());
  field<Endpoint>(config, setting) = *std::move(endpoint);
  return {};
}

Status set_ids_from_text(Config& config, const Setting& setting, std::string_view text) {
  std::vector<std::uint32_t> ids;
  for (const std::string_view part : split(text, ',')) {
    if (part.empty() && text.empty()) break;
    const auto id = parse_count(part);
    if (!id || *id > std::numeric_limits<std::uint32_t>::max()) {
      return refuse(setting, fmt::format("\"{}\" is not a number of a user or group", part));
    }
    ids.push_back(static_cast<std::uint32_t>(*id));
  }
  return set_ids(config, setting, std::move(ids));
}

Status set_parsed(Config& config, const Setting& setting, const Result<std::uint64_t>& value) {
  if (!value) return tl::unexpected(value.error());
  return set_from_number(config, setting, *value);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string number_text(const Setting& setting, std::uint64_t value) {
  switch (setting.kind) {
    case SettingKind::size:
      return format_size(value);
    case SettingKind::duration:
      return format_duration(value);
    case SettingKind::flag:
    case SettingKind::count:
    case SettingKind::text:
    case SettingKind::choice:
    case SettingKind::endpoint:
    case SettingKind::mode:
    case SettingKind::id_list:
      break;
  }
  return fmt::format("{}", value);
}

}  // namespace

const Setting* find_setting(std::string_view name) {
  const auto rows = settings();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const Setting& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

std::string_view nearest_setting(std::string_view name) {
  std::string_view nearest;
  // Up to a third of the letters may differ; beyond that a suggestion is a guess. Long names cannot
  // be near, and are not compared, so that the work is bounded.
  std::size_t best = 2 + name.size() / 3;
  if (name.size() > 64) return {};
  for (const Setting& row : settings()) {
    const std::size_t distance = edit_distance(name, row.name);
    if (distance < best) {
      best = distance;
      nearest = row.name;
    }
  }
  return nearest;
}

std::string allowed_values(const Setting& setting) {
  switch (setting.kind) {
    case SettingKind::flag:
      return "true or false";
    case SettingKind::count:
    case SettingKind::size:
    case SettingKind::duration:
      return fmt::format("{} to {}{}", number_text(setting, setting.range.min),
                         number_text(setting, setting.range.max),
                         setting.power_of_two ? ", a power of two" : "");
    case SettingKind::text:
      return setting.range.min == 0
                 ? fmt::format("text of up to {} characters", setting.range.max)
                 : fmt::format("text of {} to {} characters", setting.range.min, setting.range.max);
    case SettingKind::choice:
      return fmt::format("{}", fmt::join(split(setting.choices, '|'), ", "));
    case SettingKind::endpoint:
      return setting.range.min == 0 ? "host:port, [IPv6]:port, or empty"
                                    : "host:port or [IPv6]:port";
    case SettingKind::mode:
      return "octal text, 0000 to 0777";
    case SettingKind::id_list:
      return "a list of whole numbers, 0 to 4294967295";
  }
  return "";
}

std::string value_text(const Config& config, const Setting& setting) {
  switch (setting.kind) {
    case SettingKind::flag:
      return field<bool>(config, setting) ? "true" : "false";
    case SettingKind::count:
      return fmt::format("{}", field<std::uint32_t>(config, setting));
    case SettingKind::size:
    case SettingKind::duration:
      return number_text(setting, field<std::uint64_t>(config, setting));
    case SettingKind::text:
    case SettingKind::choice:
      return field<std::string>(config, setting);
    case SettingKind::endpoint:
      return format_endpoint(field<Endpoint>(config, setting));
    case SettingKind::mode:
      return format_mode(field<std::uint32_t>(config, setting));
    case SettingKind::id_list:
      return fmt::format("{}", fmt::join(field<std::vector<std::uint32_t>>(config, setting), ","));
  }
  return "";
}

std::string value_toml(const Config& config, const Setting& setting) {
  std::string text = value_text(config, setting);
  if (setting.kind == SettingKind::flag || setting.kind == SettingKind::count) return text;
  if (setting.kind == SettingKind::id_list) {
    return fmt::format("[{}]", fmt::join(field<std::vector<std::uint32_t>>(config, setting), ", "));
  }
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return fmt::format("\"{}\"", escaped);
}

Status set_from_text(Config& config, const Setting& setting, std::string_view text) {
  switch (setting.kind) {
    case SettingKind::flag:
      if (text != "true" && text != "false") {
        return refuse(setting, fmt::format("\"{}\" is neither", text));
      }
      field<bool>(config, setting) = text == "true";
      return {};
    case SettingKind::count:
      return set_parsed(config, setting, parse_count(text));
    case SettingKind::size:
      return set_parsed(config, setting, parse_size(text));
    case SettingKind::duration:
      return set_parsed(config, setting, parse_duration(text));
    case SettingKind::text:
      return set_text(config, setting, text);
    case SettingKind::choice:
      return set_choice(config, setting, text);
    case SettingKind::endpoint:
      return set_endpoint(config, setting, text);
    case SettingKind::mode: {
      const auto mode = parse_mode(text);
      if (!mode) return tl::unexpected(mode.error());
      field<std::uint32_t>(config, setting) = *mode;
      return {};
    }
    case SettingKind::id_list:
      return set_ids_from_text(config, setting, text);
  }
  return fail(Errc::internal, "unknown kind of setting");
}

Status set_from_number(Config& config, const Setting& setting, std::uint64_t value) {
  if (value < setting.range.min || value > setting.range.max) {
    return refuse(setting, fmt::format("{} is out of range", number_text(setting, value)));
  }
  if (setting.power_of_two && !std::has_single_bit(value)) {
    return refuse(setting, fmt::format("{} is not a power of two", number_text(setting, value)));
  }
  if (setting.kind == SettingKind::count) {
    field<std::uint32_t>(config, setting) = static_cast<std::uint32_t>(value);
  } else {
    field<std::uint64_t>(config, setting) = value;
  }
  return {};
}

Status set_ids(Config& config, const Setting& setting, std::vector<std::uint32_t> ids) {
  field<std::vector<std::uint32_t>>(config, setting) = std::move(ids);
  return {};
}

std::vector<SettingChange> config_changes(const Config& before, const Config& after) {
  std::vector<SettingChange> changes;
  for (const Setting& row : settings()) {
    std::string was = value_text(before, row);
    std::string is = value_text(after, row);
    if (was == is) continue;
    changes.push_back({row.name, std::move(was), std::move(is), row.reloadable});
  }
  return changes;
}

Config with_reloadable(const Config& running, const Config& fresh) {
  Config merged = running;
  for (const Setting& row : settings()) {
    if (!row.reloadable) continue;
    std::visit([&](auto member) { merged.*member = fresh.*member; }, row.field);
  }
  return merged;
}

}  // namespace tern::daemon
