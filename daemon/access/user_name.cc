#include "daemon/access/user_name.h"

#include <pwd.h>

#include <cerrno>
#include <charconv>
#include <vector>

namespace tern::daemon {
namespace {

// An entry of a directory may be as long as it likes; beyond this it is not believed.
constexpr std::size_t kMaxUserBytes = std::size_t{1} << 20;

}  // namespace

std::optional<std::uint32_t> user_named(const std::string& text) {
  std::uint32_t number = 0;
  const char* const end = text.data() + text.size();
  if (const auto read = std::from_chars(text.data(), end, number);
      read.ec == std::errc() && read.ptr == end) {
    return number;
  }
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(1024);
  while (::getpwnam_r(text.c_str(), &entry, buffer.data(), buffer.size(), &found) == ERANGE &&
         buffer.size() < kMaxUserBytes) {
    buffer.resize(2 * buffer.size());
  }
  return found == nullptr ? std::nullopt : std::optional<std::uint32_t>(found->pw_uid);
}

}  // namespace tern::daemon
