#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <tuple>

#include "ctl/address_findings.h"
#include "ctl/doctor.h"
#include "ctl/gpu_findings.h"

namespace tern::ctl {
namespace {

std::string first_line(const char* path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::string cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags")) return line.substr(line.find(':') + 1) + " ";
  }
  return "";
}

std::string address_text(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* from = static_cast<const void*>(&address);
  if (address.sa_family == AF_INET) {
    from = &static_cast<const sockaddr_in*>(from)->sin_addr;
  } else if (address.sa_family == AF_INET6) {
    from = &static_cast<const sockaddr_in6*>(from)->sin6_addr;
  } else {
    return "";
  }
  return ::inet_ntop(address.sa_family, from, text.data(), text.size()) == nullptr ? ""
                                                                                   : text.data();
}

// 0 where there is no link, or one that is not of a wire.
std::uint64_t speed_mbit(const std::string& interface) {
  const std::string line = first_line(("/sys/class/net/" + interface + "/speed").c_str());
  const bool is_number = !line.empty() && line.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::strtoull(line.c_str(), nullptr, 10) : 0;
}

std::vector<Interface> own_interfaces() {
  std::vector<Interface> interfaces;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, ::freeifaddrs);
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    if (std::string text = address_text(*one->ifa_addr); !text.empty()) {
      interfaces.push_back({one->ifa_name, std::move(text), speed_mbit(one->ifa_name)});
    }
  }
  return interfaces;
}

// Numbers stay what they are; a name that is not known has none.
std::vector<std::string> addresses_of(const std::string& host) {
  std::vector<std::string> addresses;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (host.empty() || host == "-" || ::getaddrinfo(host.c_str(), nullptr, &hints, &first) != 0)
    return addresses;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(first, ::freeaddrinfo);
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    if (std::string text = address_text(*one->ai_addr); !text.empty()) addresses.push_back(text);
  }
  return addresses;
}

std::uint64_t own_memlock() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 ? limit.rlim_cur : 0;
}

}  // namespace

// A line of the table: "  0: 0100007F:1E14 00000000:0000 0A ...", where 0A is LISTEN.
bool listens_on(std::istream& table, std::uint16_t port) {
  std::string line;
  std::getline(table, line);  // the titles
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state;
    words >> number >> local >> remote >> state;
    const auto colon = local.rfind(':');
    if (state != "0A" || colon == std::string::npos) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) == port) return true;
  }
  return false;
}

namespace {

namespace fs = std::filesystem;

// Rows of the GID table that are not in use are zeros, and have no kind.
void read_gids(const fs::path& port, const std::string& classes, RdmaPort& found) {
  constexpr const char* kUnused = "0000:0000:0000:0000:0000:0000:0000:0000";
  found.has_gid = found.has_roce_v2_gid = false;
  std::error_code ignored;
  for (const auto& gid : fs::directory_iterator(port / "gids", ignored)) {
    const std::string value = first_line(gid.path().c_str());
    if (value.empty() || value == kUnused) continue;
    const fs::path row = gid.path().filename();
    found.has_gid = true;
    if (first_line((port / "gid_attrs/types" / row).c_str()) == "RoCE v2") {
      found.has_roce_v2_gid = true;
    }
    const std::string interface = first_line((port / "gid_attrs/ndevs" / row).c_str());
    if (interface.empty()) continue;
    const std::string text = first_line((fs::path(classes) / "net" / interface / "mtu").c_str());
    const auto mtu = static_cast<std::uint32_t>(std::strtoul(text.c_str(), nullptr, 10));
    // Of several, of VLANs say, the one with the smallest packets.
    if (!found.interface.empty() && (mtu == 0 || mtu >= found.interface_mtu)) continue;
    found.interface = interface;
    found.interface_mtu = mtu;
  }
}

// The kernel names the device of a node, and not the node of a device.
std::string node_problem(const std::string& device, const std::string& classes,
                         const std::string& nodes) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(classes + "/infiniband_verbs", ignored)) {
    if (first_line((entry.path() / "ibdev").c_str()) != device) continue;
    const std::string node = nodes + "/" + entry.path().filename().string();
    if (::access(node.c_str(), R_OK | W_OK) == 0) return "";
    return node + " cannot be opened by this user: " + std::strerror(errno);
  }
  return "it has no node below " + nodes;
}

}  // namespace

std::vector<RdmaPort> read_rdma_ports(const std::string& classes, const std::string& nodes) {
  std::vector<RdmaPort> ports;
  std::error_code ignored;  // no such directory: no device
  for (const auto& device : fs::directory_iterator(classes + "/infiniband", ignored)) {
    for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored)) {
      // "4: ACTIVE"
      const std::string state = first_line((port.path() / "state").c_str());
      const auto colon = state.find(": ");
      RdmaPort& found = ports.emplace_back();
      found.device = device.path().filename();
      found.port = port.path().filename();
      found.state = colon == std::string::npos ? state : state.substr(colon + 2);
      found.link_layer = first_line((port.path() / "link_layer").c_str());
      found.node_problem = node_problem(found.device, classes, nodes);
      read_gids(port.path(), classes, found);
    }
  }
  std::sort(ports.begin(), ports.end(), [](const RdmaPort& a, const RdmaPort& b) {
    return std::tie(a.device, a.port) < std::tie(b.device, b.port);
  });
  return ports;
}

Machine read_machine(const std::string& advertise) {
  Machine machine;
  machine.cpu_flags = cpu_flags();
  machine.huge_pages = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  machine.interfaces = own_interfaces();
  machine.rdma_ports = read_rdma_ports("/sys/class", "/dev/infiniband");
  machine.nvidia_driver = nvidia_version(first_line("/proc/driver/nvidia/version"));
  timex clock{};
  machine.clock_synchronized = ::adjtimex(&clock) != TIME_ERROR;
  machine.unix_s = std::time(nullptr);
  machine.memlock_bytes = own_memlock();
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    machine.default_port_taken |= listens_on(file, kDefaultPeerPort);
  }
  machine.advertised = addresses_of(host_of(advertise));
  return machine;
}

}  // namespace tern::ctl
