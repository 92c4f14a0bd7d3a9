#include "ctl/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "ctl/fields.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

// Text that a program reads at a glance has a bound; the tables have the rest.
constexpr std::size_t kShownFaults = 5;

void add_links(const json& peers, std::vector<std::string>& faults) {
  if (!peers.is_array()) return;
  for (const json& peer : peers) {
    const std::string state = text_field(peer, "state");
    if (state != "resuming" && state != "closed") continue;
    faults.push_back(fmt::format("the link of lane {} to {} is {}", text_field(peer, "lane"),
                                 text_field(peer, "address"), state));
  }
}

// Of a recv from any rank none is named.
std::string waited_for(const json& op) {
  const std::string ranks = ranks_field(op, "ranks");
  if (!op.contains("tag")) return "ranks " + ranks;
  return ranks == "-" ? "any rank" : "rank " + ranks;
}

void add_groups(const json& groups, double patience_s, std::vector<std::string>& faults) {
  if (!groups.is_array()) return;
  for (const json& group : groups) {
    if (text_field(group, "state") == "failed") {
      faults.push_back(
          fmt::format("group {} failed: {}", text_field(group, "uid"), text_field(group, "error")));
    }
    for (const json& op : rows_of(group, "waiting")) {
      const auto seconds = op.is_object() ? op.find("seconds") : op.end();
      if (seconds == op.end() || !seconds->is_number() || seconds->get<double>() <= patience_s) {
        continue;
      }
      faults.push_back(fmt::format(
          "group {}: {} of {} waits for {} for {}", text_field(group, "uid"), text_field(op, "op"),
          text_field(op, "tensor"), waited_for(op), time_field(op, "seconds", 1)));
    }
  }
}

}  // namespace

Health judge_health(const json& status, const json& peers, const json& groups, double patience_s) {
  std::vector<std::string> faults;
  for (const json& lane : rows_of(status, "silent_lanes")) {
    faults.push_back(fmt::format("lane {} does not answer", lane.dump()));
  }
  add_links(peers, faults);
  add_groups(groups, patience_s, faults);
  if (faults.empty()) {
    return {true, fmt::format("OK: up {}, {} lanes, {} clients, {} groups, {} peers{}",
                              time_field(status, "uptime_s", 1), count_field(status, "lanes"),
                              count_field(status, "clients"), count_field(status, "groups"),
                              count_field(status, "peers"),
                              peers.is_null() ? " of this user; links are for observers" : "")};
  }
  std::string line = "FAULT: ";
  for (std::size_t i = 0; i < std::min(faults.size(), kShownFaults); ++i) {
    line += (i > 0 ? "; " : "") + faults[i];
  }
  if (faults.size() > kShownFaults) {
    line += fmt::format("; and {} more", faults.size() - kShownFaults);
  }
  return {false, line};
}

}  // namespace tern::ctl
