#pragma once

// The part of the doctor that looks at GPUs: whether programs can use libtern_cuda.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ctl/finding.h"

namespace tern::ctl {

// Of the first line of /proc/driver/nvidia/version; empty: it names none.
std::string nvidia_version(std::string_view line);

// Nothing where there is no driver: most nodes need none.
std::vector<Finding> examine_gpu(const Machine& machine);

// Programs that could not pin memory, by the daemon's answer to `clients`.
std::vector<Finding> examine_devices(const nlohmann::json& clients);

}  // namespace tern::ctl
