#include "codec/device/emulation/finding.h"

#include <string_view>

namespace tern::codec::device::emulation {

std::string place_text(const Site& site) {
  const std::string_view path = site.file;
  const std::size_t slash = path.find_last_of('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1)) + ":" +
         std::to_string(site.line);
}

void report(const std::string& what, const Site& site) {
  throw Finding{place_text(site) + ": " + what};
}

}  // namespace tern::codec::device::emulation
