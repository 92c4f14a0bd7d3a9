#include "daemon/config/user_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace tern::daemon {
namespace {

// Directory services allow more than /etc/passwd does, "alice@example.com" among it.
constexpr std::string_view kBesidesLetters = "0123456789._-@\\$";
constexpr std::size_t kLongestName = 256;

bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_name(std::string_view text) noexcept {
  return !text.empty() && text.size() <= kLongestName && text.front() != '-' &&
         text.front() != '@' && std::all_of(text.begin(), text.end(), [](char c) {
           return is_letter(c) || kBesidesLetters.find(c) != std::string_view::npos;
         });
}

std::string_view trimmed(std::string_view text) noexcept {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// False if it is neither a number nor a name.
bool add(std::string_view entry, UserList::Entries& entries) {
  if (entry.find_first_not_of("0123456789") != std::string_view::npos) {
    if (!is_name(entry)) return false;
    entries.names.emplace_back(entry);
    return true;
  }
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  // The highest number is the kernel's word for nobody.
  if (entry.empty() || error != std::errc{} ||
      number == std::numeric_limits<std::uint32_t>::max()) {
    return false;
  }
  entries.numbers.push_back(number);
  return true;
}

}  // namespace

Result<UserList> parse_user_list(std::string_view text) {
  UserList list;
  text = trimmed(text);
  if (text.empty()) return list;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = trimmed(text.substr(0, comma));
    const bool is_group = entry.starts_with('@');
    if (!add(is_group ? entry.substr(1) : entry, is_group ? list.groups : list.users)) {
      return fail(Errc::invalid_argument,
                  fmt::format("\"{}\" is no user or group; allowed: names and numbers with commas "
                              "between them, those of groups with an @, as in alice, 1000, @gpu",
                              entry));
    }
    if (comma == std::string_view::npos) return list;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace tern::daemon
