#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tern::ctl {

// Connects, asks one question and waits for the answer, all within `timeout`. The error's text is
// for people, with what to do; its code says which case it is: daemon_absent, permission_denied,
// version_mismatch, timeout, protocol_error, or what the daemon said.
// `args` is an object.
Result<nlohmann::json> ask_daemon(const std::string& socket_path, std::string_view verb,
                                  const nlohmann::json& args, std::chrono::milliseconds timeout);

}  // namespace tern::ctl
