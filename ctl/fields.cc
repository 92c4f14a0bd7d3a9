#include "ctl/fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/printable.h"
#include "ctl/human.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

constexpr std::string_view kAbsent = "-";

const json* find(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::optional<double> number(const json& object, std::string_view key) {
  const json* const value = find(object, key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->get<double>();
}

}  // namespace

const json& rows_of(const json& answer) {
  static const json kNone = json::array();
  return answer.is_array() ? answer : kNone;
}

const json& rows_of(const json& answer, std::string_view key) {
  const json* const field = find(answer, key);
  return field != nullptr ? rows_of(*field) : rows_of(json());
}

std::string text_field(const json& object, std::string_view key) {
  const json* const value = find(object, key);
  if (value == nullptr || value->is_null()) return std::string(kAbsent);
  const std::string text = value->is_string() ? value->get<std::string>() : value->dump();
  return text.empty() ? std::string(kAbsent) : printable(text);
}

std::string count_field(const json& object, std::string_view key) {
  const json* const value = find(object, key);
  if (value == nullptr || !value->is_number_unsigned()) return text_field(object, key);
  return human_count(value->get<std::uint64_t>());
}

std::string bytes_field(const json& object, std::string_view key) {
  const auto value = number(object, key);
  return value ? human_bytes(*value) : std::string(kAbsent);
}

std::string time_field(const json& object, std::string_view key, double unit_s) {
  const auto value = number(object, key);
  return value ? human_seconds(*value * unit_s) : std::string(kAbsent);
}

std::string ratio_field(const json& object, std::string_view key) {
  const auto value = number(object, key);
  return value ? human_ratio(*value) : std::string(kAbsent);
}

std::string fraction_field(const json& object, std::string_view key) {
  const auto value = number(object, key);
  return value ? fmt::format("{:.3g}", *value) : std::string(kAbsent);
}

std::string ranks_field(const json& object, std::string_view key) {
  const json* const value = find(object, key);
  if (value == nullptr || !value->is_array()) return std::string(kAbsent);
  std::vector<std::int64_t> ranks;
  for (const json& rank : *value) {
    if (rank.is_number_integer()) ranks.push_back(rank.get<std::int64_t>());
  }
  return ranks.empty() ? std::string(kAbsent) : human_ranks(std::move(ranks));
}

}  // namespace tern::ctl
