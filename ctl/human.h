#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Numbers and names as people read them.
namespace tern::ctl {

std::string human_count(std::uint64_t count);  // "12,345"
std::string human_bytes(double bytes);         // "1.5 GiB", "512 B"
std::string human_seconds(double seconds);     // "20 us", "1.5 ms", "12 s", "2 min 5 s", "3 d 4 h"
std::string human_ratio(double ratio);         // "46.5x"
std::string human_ranks(std::vector<std::int64_t> ranks);  // "0-3,7"

}  // namespace tern::ctl
