#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tern::daemon {

// What the machine grants this process, for `ternctl doctor`: nobody else can see it so exactly.
nlohmann::json report_host(const std::string& flight_directory);

// Of this process, resident now.
std::uint64_t rss_bytes();

}  // namespace tern::daemon
