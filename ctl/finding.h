#pragma once

// What the doctor looks at and what it finds, for all of its parts.

#include <cstdint>
#include <string>
#include <vector>

namespace tern::ctl {

enum class Grade { good, advice, fault };

struct Finding {
  Grade grade = Grade::good;
  std::string subject;  // "memory lock"
  std::string text;     // what was found
  std::string remedy;   // empty where all is good
};

// An address of this machine, and the interface that has it.
struct Interface {
  std::string name;
  std::string address;
  std::uint64_t speed_mbit = 0;  // of its link; 0: it does not say
};

// A port of an RDMA device, as the kernel names and describes it.
struct RdmaPort {
  std::string device;
  std::string port;
  std::string state;       // "ACTIVE"
  std::string link_layer;  // "InfiniBand" or "Ethernet"
  bool has_gid = true;
  bool has_roce_v2_gid = true;
  std::string interface = {};       // of RoCE
  std::uint32_t interface_mtu = 0;  // 0: it is not known
  std::string node_problem = {};    // why this user cannot open the device's node
};

// What is read of the machine itself; empty where it cannot be read.
struct Machine {
  std::string cpu_flags;   // of /proc/cpuinfo, one space around each
  std::string huge_pages;  // .../transparent_hugepage/shmem_enabled
  std::vector<Interface> interfaces;
  bool clock_synchronized = true;
  std::vector<RdmaPort> rdma_ports = {};
  std::int64_t unix_s = 0;
  std::uint64_t memlock_bytes = 0;           // what this process may lock
  bool default_port_taken = false;           // by anybody
  std::vector<std::string> advertised = {};  // addresses of the daemon's advertised host
  std::string nvidia_driver = {};            // its version
};

// Of ternd's default `listen`.
inline constexpr std::uint16_t kDefaultPeerPort = 7700;

}  // namespace tern::ctl
