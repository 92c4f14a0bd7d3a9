#pragma once

// The part of the doctor that looks at RDMA: devices, ports, addresses, packets, and what links
// say.

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "ctl/finding.h"

namespace tern::ctl {

// `status` and `peers` are the daemon's answers; null: there is none, or it does not show that. The
// first is of the ports there are; more follow where something is to be said.
std::vector<Finding> examine_rdma(const Machine& machine, const nlohmann::json& status,
                                  const nlohmann::json& peers);

}  // namespace tern::ctl
