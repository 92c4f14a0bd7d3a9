#include "ctl/address_findings.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/printable.h"
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

// Addresses as the C library writes them, names in small letters.
std::string same_form(std::string text) {
  for (const int family : {AF_INET, AF_INET6}) {
    std::array<unsigned char, sizeof(in6_addr)> address{};
    std::array<char, INET6_ADDRSTRLEN> written{};
    if (::inet_pton(family, text.c_str(), address.data()) == 1 &&
        ::inet_ntop(family, address.data(), written.data(), written.size()) != nullptr) {
      return written.data();
    }
  }
  for (char& letter : text) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return text;
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
  // Empty, 0.0.0.0 and :: are all addresses.
  const std::string listens = host_of(text_field(status, "listen"));
  const auto is_advertised = [&](const std::string& address) {
    return std::find(machine.advertised.begin(), machine.advertised.end(), address) !=
           machine.advertised.end();
  };
  const Interface* const interface = advertised_interface(machine);
  const bool listens_elsewhere =
      interface != nullptr && interface_of(machine, listens) != nullptr && !is_advertised(listens);
  if (is_loopback(listens) || listens_elsewhere) {
    return {Grade::fault, "port",
            fmt::format("other nodes are told {}, but the daemon listens on {} alone", advertise,
                        printable(listens)),
            "set listen to that address, or to 0.0.0.0:PORT, and restart"};
  }
  if (machine.advertised.empty() && !machine.interfaces.empty()) {
    return {Grade::advice, "port", printable(host) + " has no address that this machine could find",
            "set `advertise` to an address, or add the name to DNS or /etc/hosts on all nodes"};
  }
  // Debian's installer gives a machine's own name 127.0.1.1 there.
  const bool is_own_name =
      std::any_of(machine.advertised.begin(), machine.advertised.end(), is_loopback);
  if (interface == nullptr && !is_own_name && !machine.interfaces.empty()) {
    return {Grade::advice, "port", advertise + " is no address of this machine",
            "right behind address translation only; else correct `advertise`"};
  }
  return {Grade::good, "port", "other nodes are told " + advertise, ""};
}

Finding examine_own_port(const Machine& machine) {
  if (machine.default_port_taken) {
    return {
        Grade::advice, "port", fmt::format("port {} is taken", kDefaultPeerPort),
        "`ss -ltnp` says by whom: a ternd with another control socket, for --socket, or a program "
        "beside which listen must be another port"};
  }
  return {Grade::good, "port", fmt::format("port {} is free", kDefaultPeerPort), ""};
}

std::vector<Finding> examine_interfaces(const Machine& machine) {
  std::vector<Finding> findings;
  std::set<std::string_view> seen;  // an interface has several addresses
  for (const Interface& interface : machine.interfaces) {
    if (interface.speed_mbit == 0 || !seen.insert(interface.name).second) continue;
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
  const std::string wanted = same_form(host);
  if (names->empty()) return same_form(text_field(certificate, "subject")) == wanted;
  return std::any_of(names->begin(), names->end(), [&](const json& entry) {
    if (!entry.is_string()) return false;
    const std::string name = same_form(entry.get<std::string>());
    if (!name.starts_with("*.")) return name == wanted;
    // A star is for one label, and not for all of a domain of one.
    const auto dot = wanted.find('.');
    return name.find('.', 2) != std::string::npos && dot != std::string::npos &&
           name.compare(1, std::string::npos, wanted, dot, std::string::npos) == 0;
  });
}

}  // namespace tern::ctl
