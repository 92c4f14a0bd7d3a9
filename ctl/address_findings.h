#pragma once

// The part of the doctor that looks at addresses, ports, interfaces, and the names in certificates.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ctl/finding.h"

namespace tern::ctl {

// "10.0.0.5" of "10.0.0.5:7700", "::1" of "[::1]:7700".
std::string host_of(const std::string& endpoint);

// The address that other nodes are told: is it one of this machine, and does the daemon listen
// there?
Finding examine_port(const Machine& machine, const nlohmann::json& status);

// The interface that has it.
Finding examine_network(const Machine& machine);

// Without a daemon: whether another program has its port, and the interfaces there are.
Finding examine_own_port(const Machine& machine);
std::vector<Finding> examine_interfaces(const Machine& machine);

// Whether a row of the status' certificates has the name or address.
bool is_for(const nlohmann::json& certificate, const std::string& host);

}  // namespace tern::ctl
