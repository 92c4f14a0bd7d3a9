#include "ctl/flight_directories.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tern::ctl {
namespace {

// Of the service that the packages install, wherever its control socket is.
constexpr const char* kOfService = "/var/lib/tern";

}  // namespace

std::vector<std::string> flight_directories(const nlohmann::json& host,
                                            const std::string& control_socket) {
  const auto told = host.is_object() ? host.find("flight_directory") : host.end();
  if (host.is_object() && told != host.end() && told->is_string()) {
    return {told->get<std::string>()};
  }
  const std::filesystem::path folder = std::filesystem::path(control_socket).parent_path();
  std::vector<std::string> directories{folder};
  // Of the instance in /run/tern-ib0 it is /var/lib/tern-ib0.
  for (const std::string& other :
       {("/var/lib" / folder.filename()).string(), std::string(kOfService)}) {
    const bool is_known = std::ranges::find(directories, other) != directories.end();
    if (!is_known) directories.push_back(other);
  }
  return directories;
}

}  // namespace tern::ctl
