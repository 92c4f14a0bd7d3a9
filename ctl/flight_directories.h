#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tern::ctl {

// Where the daemon of this control socket writes its flight records: as it has answered to `host`,
// or, while it says nothing, where it does unless it is told otherwise. No directory twice.
std::vector<std::string> flight_directories(const nlohmann::json& host,
                                            const std::string& control_socket);

}  // namespace tern::ctl
