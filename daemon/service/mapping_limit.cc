#include "daemon/service/mapping_limit.h"

#include <fstream>

namespace tern::daemon {

MappingLimit mapping_limit(const std::string& path) {
  std::uint64_t count = 0;
  const bool is_known = std::ifstream(path) >> count && count > 0;
  return is_known ? MappingLimit{count, true} : MappingLimit{};
}

}  // namespace tern::daemon
