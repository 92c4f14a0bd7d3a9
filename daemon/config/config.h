#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/config/config_sections.h"

namespace tern::daemon {

// A TCP address as text. The host is a name, an IPv4 or an IPv6 address, without brackets.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;

  bool operator==(const Endpoint&) const = default;
};

// What the daemon is told. The initialisers are the defaults; the table in settings.cc has the
// name, the range and the meaning of each field, and every other form of a setting is made from it.
// Durations are nanoseconds, sizes bytes. Sections that other parts take whole are bases.
struct Config : OpSettings, TensorSettings, Admission, Limits {
  // [network]
  Endpoint listen{"127.0.0.1", 7700};  // port 0: the kernel chooses
  Endpoint advertise;                  // empty host: as listen; see advertised_endpoint()
  std::string transport = "auto";
  std::string peer_transports;  // host=transport, with commas
  std::uint64_t handshake_timeout_ns = 5'000'000'000;
  std::uint64_t peer_timeout_ns = 5'000'000'000;
  std::uint64_t resume_timeout_ns = 2'000'000'000;
  std::uint64_t heartbeat_ns = 1'000'000'000;
  std::uint64_t unused_timeout_ns = 10'000'000'000;
  std::uint64_t socket_send_buffer_bytes = 0;     // 0: the kernel's
  std::uint64_t socket_receive_buffer_bytes = 0;  // 0: the kernel's
  std::uint64_t switch_port_bytes = 0;            // 0: not known

  // [security]
  std::string peer_security = "local";
  std::string tls_ca_file;
  std::string tls_certificate_file;
  std::string tls_key_file;
  std::string cluster_key_file;
  bool rdma_unencrypted = false;

  // [rdma]
  std::string rdma_devices;            // empty: all
  std::uint32_t rdma_gid_index = 255;  // 255: the best
  std::uint64_t rdma_mtu_bytes = 0;    // 0: the port's
  std::uint32_t rdma_service_level = 0;
  std::uint32_t rdma_traffic_class = 0;
  std::uint32_t rdma_timeout_exponent = 14;
  std::uint32_t rdma_retry_count = 6;
  std::uint32_t rdma_receive_slots = 64;
  std::uint64_t rdma_slot_bytes = std::uint64_t{64} * 1024;
  std::uint64_t rdma_max_registered_bytes = 8ULL << 30;
  bool rdma_payload_crc = true;
  std::uint64_t rdma_retry_ns = 10'000'000'000;

  // [local]
  std::string socket = "/run/tern/ternd.sock";
  std::uint32_t socket_mode = 0666;
  std::string control_socket = "/run/tern/control.sock";
  std::uint32_t control_socket_mode = 0666;  // who sees what is Access's to say
  std::string observers = "@tern";           // see parse_user_list()
  std::string administrators;

  // [lanes]
  std::uint32_t lanes = 1;
  bool pin_lanes = false;
  std::uint64_t spin_ns = 20'000;
  std::uint32_t send_slabs = 64;
  std::uint32_t receive_slabs = 64;
  std::uint32_t result_slabs = 32;

  // [codec]
  std::string kernel_target = "auto";
  std::string codebook_dir;

  // [tuner]
  std::string candidates;  // empty: the usual ones
  std::string policy;
  std::string choice_directory;  // empty: no logs of choices
  std::string state_directory;   // empty: see state_directory()

  // [diagnostics]
  std::string log_level = "info";
  Endpoint metrics_listen;       // empty host: none
  std::string flight_directory;  // empty: see flight_directory()
};

// What travels between nodes is encrypted: peer_security is tls or key.
bool encrypts_peers(const Config& config);

// The address that other nodes are told. bound_port is the port that listens, for port 0.
Endpoint advertised_endpoint(const Config& config, std::uint16_t bound_port);

// Where what was learnt is kept: as set, else what the supervisor gives ($STATE_DIRECTORY), else
// empty: nowhere.
std::string state_directory(const Config& config);

// The directory of the flight recorder's files: as configured, or the state directory of the
// supervisor ($STATE_DIRECTORY), or that of the control socket.
std::string flight_directory(const Config& config);

}  // namespace tern::daemon
