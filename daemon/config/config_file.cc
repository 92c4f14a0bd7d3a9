#include "daemon/config/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include "daemon/config/settings.h"

namespace tern::daemon {
namespace {

// A file of settings is a few KiB; more is a mistaken path, and would be read into memory.
constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMaxMistakes = 20;

class Reader {
 public:
  Reader(Config& config, std::string_view file_name) : config_(config), file_name_(file_name) {}

  void read(const toml::table& root);
  Status finish() const;

 private:
  void read_section(std::string_view section, const toml::table& table);
  void read_value(const Setting& setting, const toml::node& node);
  void read_ids(const Setting& setting, const toml::node& node);
  void report_unknown(const toml::key& key);
  void report(const toml::source_region& where, std::string_view what);

  Config& config_;
  std::string_view file_name_;
  std::vector<std::string> mistakes_;
};

bool is_section(std::string_view name) {
  for (const Setting& row : settings()) {
    if (row.section == name) return true;
  }
  return false;
}

void Reader::read(const toml::table& root) {
  for (auto&& [key, node] : root) {
    if (const Setting* const setting = find_setting(key.str());
        setting != nullptr && !node.is_table()) {
      report(key.source(), fmt::format("{} stands outside of its table; put it under [{}]",
                                       key.str(), setting->section));
    } else if (!is_section(key.str())) {
      report_unknown(key);
    } else if (const toml::table* const table = node.as_table()) {
      read_section(key.str(), *table);
    } else {
      report(node.source(),
             fmt::format("{} is a table; write [{}] on a line of its own", key.str(), key.str()));
    }
  }
}

void Reader::read_section(std::string_view section, const toml::table& table) {
  for (auto&& [key, node] : table) {
    const Setting* const setting = find_setting(key.str());
    if (setting == nullptr) {
      report_unknown(key);
    } else if (setting->section != section) {
      report(key.source(), fmt::format("{} is not a setting of [{}]; put it under [{}]", key.str(),
                                       section, setting->section));
    } else {
      read_value(*setting, node);
    }
  }
}

void Reader::read_value(const Setting& setting, const toml::node& node) {
  const auto wrong_type = [&] {
    report(node.source(),
           fmt::format("{}: is of the wrong type; allowed: {}{}", setting.name,
                       allowed_values(setting),
                       setting.kind == SettingKind::duration ? ", in quotes and with a unit" : ""));
  };
  Status status;
  if (setting.kind == SettingKind::id_list) return read_ids(setting, node);
  if (setting.kind == SettingKind::flag) {
    const auto* const value = node.as_boolean();
    if (value == nullptr) return wrong_type();
    status = set_from_text(config_, setting, value->get() ? "true" : "false");
  } else if (const auto* const number = node.as_integer()) {
    const std::int64_t value = number->get();
    const bool takes_number = setting.kind == SettingKind::count ||
                              setting.kind == SettingKind::size ||
                              (setting.kind == SettingKind::duration && value == 0);
    if (!takes_number) return wrong_type();
    status = value < 0
                 ? Status(fail(Errc::invalid_argument, fmt::format("{} is negative; allowed: {}",
                                                                   value, allowed_values(setting))))
                 : set_from_number(config_, setting, static_cast<std::uint64_t>(value));
  } else if (const auto* const text = node.as_string();
             text && setting.kind != SettingKind::count) {
    status = set_from_text(config_, setting, text->get());
  } else {
    return wrong_type();
  }
  if (!status) report(node.source(), fmt::format("{}: {}", setting.name, status.error().text));
}

void Reader::read_ids(const Setting& setting, const toml::node& node) {
  const toml::array* const array = node.as_array();
  const auto refuse = [&](const toml::node& where) {
    report(where.source(), fmt::format("{}: is of the wrong type; allowed: {}", setting.name,
                                       allowed_values(setting)));
  };
  if (array == nullptr) return refuse(node);
  std::vector<std::uint32_t> ids;
  for (const toml::node& element : *array) {
    const auto* const id = element.as_integer();
    if (id == nullptr || id->get() < 0 || id->get() > std::numeric_limits<std::uint32_t>::max()) {
      return refuse(element);
    }
    ids.push_back(static_cast<std::uint32_t>(id->get()));
  }
  if (auto status = set_ids(config_, setting, std::move(ids)); !status) {
    report(node.source(), fmt::format("{}: {}", setting.name, status.error().text));
  }
}

void Reader::report_unknown(const toml::key& key) {
  const std::string_view nearest = nearest_setting(key.str());
  report(key.source(),
         nearest.empty()
             ? fmt::format("unknown key \"{}\"; `ternd --print-sample-config` lists all", key.str())
             : fmt::format("unknown key \"{}\"; did you mean {}?", key.str(), nearest));
}

void Reader::report(const toml::source_region& where, std::string_view what) {
  if (mistakes_.size() == kMaxMistakes) return;
  mistakes_.push_back(
      fmt::format("{}:{}:{}: {}", file_name_, where.begin.line, where.begin.column, what));
}

Status Reader::finish() const {
  if (mistakes_.empty()) return {};
  std::string text;
  for (const std::string& mistake : mistakes_) {
    if (!text.empty()) text += '\n';
    text += mistake;
  }
  return fail(Errc::invalid_argument, std::move(text));
}

}  // namespace

Status apply_config_text(Config& config, std::string_view toml, std::string_view file_name) {
  try {
    const toml::table root = toml::parse(toml, file_name);
    Reader reader(config, file_name);
    reader.read(root);
    return reader.finish();
  } catch (const toml::parse_error& error) {
    return fail(
        Errc::invalid_argument,
        fmt::format("{}:{}:{}: {}; the file must be TOML 1.0", file_name, error.source().begin.line,
                    error.source().begin.column, error.description()));
  }
}

Status apply_config_file(Config& config, const std::string& path) {
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rce"));
  if (file == nullptr) return fail_errno(Errc::io_error, path + ": cannot be read", errno);
  std::string text;
  std::array<char, 4096> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    text.append(buffer.data(), count);
    if (text.size() > kMaxFileBytes) {
      return fail(Errc::invalid_argument, path + ": is larger than 1 MiB; is it the settings?");
    }
  }
  if (std::ferror(file.get()) != 0) {
    return fail_errno(Errc::io_error, path + ": cannot be read", errno);
  }
  return apply_config_text(config, text, path);
}

}  // namespace tern::daemon
