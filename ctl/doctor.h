#pragma once

// Looks for what makes a node slow or deaf before a job finds out, and says what to do about it.

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ctl/finding.h"

namespace tern::ctl {

// `advertise`: the daemon's, whose host is looked up; empty where no daemon answers.
Machine read_machine(const std::string& advertise);
// Whether a table like /proc/net/tcp has a listening socket with the port.
bool listens_on(std::istream& table, std::uint16_t port);
// From directories like /sys/class and /dev/infiniband.
std::vector<RdmaPort> read_rdma_ports(const std::string& classes, const std::string& nodes);

// The daemon's; null: it does not show that to this user.
struct Answers {
  const nlohmann::json& status;
  const nlohmann::json& host;
  const nlohmann::json& peers;
  const nlohmann::json& counters;
  const nlohmann::json& clients;
};
std::vector<Finding> examine(const Machine& machine, const Answers& answers);

// What can be said while no daemon answers.
std::vector<Finding> examine_machine(const Machine& machine);

// For people: a line for each, with the remedy below it.
std::string render_findings(const std::vector<Finding>& findings);
nlohmann::json findings_json(const std::vector<Finding>& findings);

}  // namespace tern::ctl
