#include "daemon/service/memory_limit.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

#include "base/machine_memory.h"

namespace tern::daemon {
namespace {

// The path of the group, "/" for the root; empty where there are no groups of version 2.
std::string own_group(const std::string& path) {
  constexpr std::string_view kVersion2 = "0::";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kVersion2)) return line.substr(kVersion2.size());
  }
  return "";
}

}  // namespace

std::uint64_t memory_limit_bytes(const MemoryFiles& files) {
  std::uint64_t least = machine_memory_bytes();
  std::string group = own_group(files.own_group);
  while (!group.empty()) {
    // "max" is no number, and the root has no file.
    std::string text;
    std::ifstream(files.groups + group + "/memory.max") >> text;
    std::uint64_t bytes = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, bytes);
    if (read.ec == std::errc() && read.ptr == end) least = std::min(least, bytes);
    if (group == "/") break;
    const auto slash = group.rfind('/');
    group.resize(slash == std::string::npos ? 0 : std::max<std::size_t>(slash, 1));
  }
  return least;
}

}  // namespace tern::daemon
