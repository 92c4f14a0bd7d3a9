#include "daemon/access/sub_users.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "daemon/access/user_name.h"

namespace tern::daemon {
namespace {

std::optional<std::uint32_t> number_in(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && !text.empty() ? std::optional(number) : std::nullopt;
}

}  // namespace

SubUsers SubUsers::read(const std::string& path) {
  SubUsers users;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto first_colon = line.find(':');
    const auto second_colon = line.find(':', first_colon + 1);
    if (first_colon == std::string::npos || second_colon == std::string::npos) continue;
    const std::string_view rest = line;
    const auto first = number_in(rest.substr(first_colon + 1, second_colon - first_colon - 1));
    const auto count = number_in(rest.substr(second_colon + 1));
    if (!first || !count || *count == 0) continue;
    if (const auto owner = user_named(line.substr(0, first_colon))) {
      users.ranges_.push_back({*first, std::uint64_t{*first} + *count, *owner});
    }
  }
  std::stable_sort(users.ranges_.begin(), users.ranges_.end(),
                   [](const Range& a, const Range& b) { return a.first < b.first; });
  std::uint64_t end = 0;
  for (Range& range : users.ranges_) {
    range.first = std::max(range.first, end);
    end = std::max(end, range.end);
  }
  std::erase_if(users.ranges_, [](const Range& one) { return one.first >= one.end; });
  return users;
}

std::uint32_t SubUsers::owner_of(std::uint32_t user) const noexcept {
  const auto next =
      std::upper_bound(ranges_.begin(), ranges_.end(), user,
                       [](std::uint32_t sought, const Range& one) { return sought < one.first; });
  if (next == ranges_.begin()) return user;
  const Range& range = *std::prev(next);
  return user < range.end ? range.owner : user;
}

}  // namespace tern::daemon
