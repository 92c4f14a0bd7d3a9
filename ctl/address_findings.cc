#include "ctl/address_findings.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ctl/fields.h"
#include "ctl/human.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

// From here on raw is as fast as most recipes.
constexpr std::uint64_t kFastMbit = 10'000;

const Interface* interface_of(const Machine& machine, const std::string& address) {
  const auto found =
      std::find_if(machine.interfaces.begin(), machine.interfaces.end(),
                   [&](const Interface& interface) { return interface.address == address; });
  return found == machine.interfaces.end() ? nullptr : &*found;
}

// Of the advertised host's addresses: itself, or what its name resolves to.
const Interface* advertised_interface(const Machine& machine) {
  for (const std::string& address : machine.advertised) {
    if (const Interface* const found = interface_of(machine, address)) return found;
  }
  return nullptr;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Finding speed_of(const Interface& interface) {
  const std::string found =
      fmt::format("{} at {} Mbit/s", printable(interface.name), human_count(interface.speed_mbit));
  if (interface.speed_mbit >= kFastMbit) return {Grade::good, "network", found, ""};
  return {Grade::advice, "network", found,
          "at this speed compress gradients, docs/codecs.md; or listen on a faster interface"};
}

}  // namespace

std::string host_of(const std::string& endpoint) {
  const std::string host = endpoint.substr(0, endpoint.rfind(':'));
  const bool bracketed = host.size() > 1 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

Finding examine_network(const Machine& machine) {
  const Interface* const interface = advertised_interface(machine);
  if (interface == nullptr || interface->speed_mbit == 0) {
    return {Grade::good, "network", "the interface does not say how fast its link is", ""};
  }
  return speed_of(*interface);
}

Finding examine_port(const Machine& machine, const json& status) {
  const std::string advertise = text_field(status, "advertise"), host = host_of(advertise);
  if (is_loopback(host)) {
    return {Grade::advice, "port", advertise + " is for this machine only",
            "to work with other nodes set listen to an address that they reach, and restart"};
  }
  if (machine.advertised.empty() && !machine.interfaces.empty()) {
    return {Grade::fault, "port", printable(host) + " has no address that this machine could find",
            "set `advertise` to an address, or add the name to DNS or /etc/hosts on all nodes"};
  }
  const Interface* const interface = advertised_interface(machine);
  // Debian's installer gives a machine's own name 127.0.1.1 there.
  const bool is_own_name =
      std::any_of(machine.advertised.begin(), machine.advertised.end(), is_loopback);
  if (interface == nullptr && !is_own_name && !machine.interfaces.empty()) {
    return {Grade::advice, "port", advertise + " is no address of this machine",
            "right behind address translation only; else correct `advertise`"};
  }
  // Empty, 0.0.0.0 and :: are all addresses.
  const std::string listens = host_of(text_field(status, "listen"));
  const bool is_one_of_ours = interface_of(machine, listens) != nullptr;
  if (interface != nullptr && is_one_of_ours && listens != interface->address) {
    return {Grade::fault, "port",
            fmt::format("other nodes are told {}, but the daemon listens on {} alone", advertise,
                        printable(listens)),
            "set listen to that address, or to 0.0.0.0:PORT, and restart"};
  }
  return {Grade::good, "port", "other nodes are told " + advertise, ""};
}

Finding examine_own_port(const Machine& machine) {
  if (machine.default_port_taken) {
    return {Grade::advice, "port",
            fmt::format("port {} is taken by another program", kDefaultPeerPort),
            "`ss -ltnp` names it; end it, or set listen to another port on this node"};
  }
  return {Grade::good, "port", fmt::format("port {} is free", kDefaultPeerPort), ""};
}

std::vector<Finding> examine_interfaces(const Machine& machine) {
  std::vector<Finding> findings;
  std::string_view last;  // an interface has several addresses
  for (const Interface& interface : machine.interfaces) {
    if (interface.speed_mbit == 0 || interface.name == last) continue;
    last = interface.name;
    findings.push_back(speed_of(interface));
  }
  if (findings.empty()) {
    findings.push_back({Grade::good, "network", "no interface says how fast its link is", ""});
  }
  return findings;
}

bool is_for(const json& certificate, const std::string& host) {
  const auto names = certificate.is_object() ? certificate.find("names") : certificate.end();
  if (!certificate.is_object() || names == certificate.end() || !names->is_array()) return true;
  return std::any_of(names->begin(), names->end(), [&](const json& entry) {
    if (!entry.is_string()) return false;
    const std::string name = entry.get<std::string>();
    if (!name.starts_with("*.")) return ::strcasecmp(name.c_str(), host.c_str()) == 0;
    const auto dot = host.find('.');  // a star is for one label
    return dot != std::string::npos && ::strcasecmp(name.c_str() + 1, host.c_str() + dot) == 0;
  });
}

}  // namespace tern::ctl
