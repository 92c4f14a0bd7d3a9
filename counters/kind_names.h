#pragma once

// Counters that are one family together: `ops_of_all_reduce` counts the operations of the kind
// all_reduce, and so on for every kind.

#include <optional>
#include <string>
#include <string_view>

namespace tern::counters {

inline constexpr std::string_view kKindPrefix = "ops_of_";

inline std::string kind_counter_name(std::string_view kind) {
  return std::string(kKindPrefix) + std::string(kind);
}
// None: the counter is not of a kind.
inline std::optional<std::string_view> kind_of_counter(std::string_view name) {
  if (!name.starts_with(kKindPrefix)) return std::nullopt;
  return name.substr(kKindPrefix.size());
}

}  // namespace tern::counters
