#include "daemon/service/mapping_limit.h"

#include <fstream>

namespace tern::daemon {

std::uint64_t mapping_limit(const std::string& path) {
  constexpr std::uint64_t kUsual = 65'530;
  std::uint64_t limit = 0;
  return std::ifstream(path) >> limit && limit > 0 ? limit : kUsual;
}

}  // namespace tern::daemon
