#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sys/timex.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <tuple>

#include "ctl/doctor.h"

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

}  // namespace

std::vector<RdmaPort> read_rdma_ports(const std::string& directory) {
  namespace fs = std::filesystem;
  std::vector<RdmaPort> ports;
  std::error_code ignored;  // no such directory: no device
  for (const auto& device : fs::directory_iterator(directory, ignored)) {
    for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored)) {
      // "4: ACTIVE"
      const std::string state = first_line((port.path() / "state").c_str());
      const auto colon = state.find(": ");
      ports.push_back({device.path().filename(), port.path().filename(),
                       colon == std::string::npos ? state : state.substr(colon + 2),
                       first_line((port.path() / "link_layer").c_str())});
    }
  }
  std::sort(ports.begin(), ports.end(), [](const RdmaPort& a, const RdmaPort& b) {
    return std::tie(a.device, a.port) < std::tie(b.device, b.port);
  });
  return ports;
}

Machine read_machine() {
  Machine machine;
  machine.cpu_flags = cpu_flags();
  machine.huge_pages = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  machine.interfaces = own_interfaces();
  machine.rdma_ports = read_rdma_ports("/sys/class/infiniband");
  timex clock{};
  machine.clock_synchronized = ::adjtimex(&clock) != TIME_ERROR;
  machine.unix_s = std::time(nullptr);
  return machine;
}

}  // namespace tern::ctl
