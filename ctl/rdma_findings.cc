#include "ctl/rdma_findings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/printable.h"
#include "ctl/fields.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

constexpr const char* kSubject = "RDMA";
// With room for the headers of RoCE around 4096 bytes, the most that a packet carries.
constexpr std::uint32_t kMtuEnough = 4200;

std::string name_of(const RdmaPort& port) {
  return fmt::format("{} port {}", printable(port.device), printable(port.port));
}

bool is_active(const RdmaPort& port) { return port.state == "ACTIVE"; }
bool is_ethernet(const RdmaPort& port) { return port.link_layer == "Ethernet"; }

bool uses_rdma(const json& peers) {
  for (const json& peer : rows_of(peers)) {
    if (text_field(peer, "transport") == "rdma") return true;
  }
  return false;
}

// Empty, or why the daemon cannot use what the machine has. What it found when it started counts no
// more once a link has come to RDMA.
std::string daemons_problem(const json& status, const json& peers) {
  constexpr std::string_view kCannot = "TCP: ";  // as opposed to "TCP, as configured"
  if (uses_rdma(peers)) return "";
  const std::string carriers = text_field(status, "carriers");
  return carriers.starts_with(kCannot) ? carriers.substr(kCannot.size()) : "";
}

Finding examine_ports(const Machine& machine, const json& status, const json& peers) {
  std::string active, down;
  for (const RdmaPort& port : machine.rdma_ports) {
    std::string& list = is_active(port) ? active : down;
    if (!list.empty()) list += ", ";
    list += fmt::format("{} ({})", name_of(port),
                        printable(is_active(port) ? port.link_layer : port.state));
  }
  if (!down.empty()) {
    return {Grade::advice, kSubject, "not active: " + down,
            "cable, switch, and for RoCE `ip link set DEV up`; InfiniBand needs a subnet manager"};
  }
  const std::string problem = daemons_problem(status, peers);
  if (problem.empty()) return {Grade::good, kSubject, "active: " + active, ""};
  return {Grade::advice, kSubject, "active: " + active + "; but for the daemon " + problem,
          "docs/rdma.md, setting up; then restart the daemon"};
}

void examine_addresses(const RdmaPort& port, std::vector<Finding>& findings) {
  if (is_ethernet(port) && !port.has_roce_v2_gid) {
    findings.push_back(
        {Grade::advice, kSubject, name_of(port) + " has no GID of RoCE v2",
         "give its interface an IP address; both ends of a link need GIDs of one kind"});
  } else if (!is_ethernet(port) && !port.has_gid) {
    findings.push_back(
        {Grade::advice, kSubject, name_of(port) + " has no GID", "is the subnet manager running?"});
  }
}

void examine_packets(const RdmaPort& port, std::vector<Finding>& findings) {
  if (!is_ethernet(port) || port.interface_mtu == 0 || port.interface_mtu >= kMtuEnough) return;
  findings.push_back(
      {Grade::advice, kSubject,
       fmt::format("{} is on {}, whose MTU of {} makes packets of RDMA small", name_of(port),
                   printable(port.interface), port.interface_mtu),
       fmt::format("`ip link set {} mtu 9000`, on all nodes and the switches between them",
                   printable(port.interface))});
}

// What the daemon may open it says itself.
void examine_node(const RdmaPort& port, std::vector<Finding>& findings) {
  if (port.node_problem.empty()) return;
  findings.push_back({Grade::advice, kSubject,
                      fmt::format("{}: {}", name_of(port), printable(port.node_problem)),
                      "the module ib_uverbs makes the node; the daemon's user reads and writes it, "
                      "docs/rdma.md, setting up"});
}

// A daemon that has RDMA, and links that have not come to it.
void examine_links(const json& status, const json& peers, std::vector<Finding>& findings) {
  if (!text_field(status, "carriers").starts_with("RDMA over")) return;
  for (const json& peer : rows_of(peers)) {
    const std::string carrier = text_field(peer, "transport");
    const std::string note = text_field(peer, "transport_note");
    const bool is_told = note == "-" || note.empty() || note == "the settings say so";
    if ((carrier != "tcp" && carrier != "tls") || is_told) continue;
    findings.push_back(
        {Grade::advice, kSubject,
         fmt::format("a link to {} is on {}: {}", text_field(peer, "address"), carrier, note),
         "`ternctl peers` shows all; `ternctl doctor` there too"});
    return;
  }
}

}  // namespace

std::vector<Finding> examine_rdma(const Machine& machine, const json& status, const json& peers) {
  if (machine.rdma_ports.empty()) {
    return {{Grade::good, kSubject, "no device: frames travel by TCP", ""}};
  }
  std::vector<Finding> findings{examine_ports(machine, status, peers)};
  for (const RdmaPort& port : machine.rdma_ports) {
    if (!is_active(port)) continue;
    examine_addresses(port, findings);
    examine_packets(port, findings);
    if (status.is_null()) examine_node(port, findings);
  }
  examine_links(status, peers, findings);
  return findings;
}

}  // namespace tern::ctl
