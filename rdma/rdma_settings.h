#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tern::rdma {

enum class Choice : std::uint8_t {
  if_possible,  // RDMA where both ends can, else the connection stays where it is
  never,
  required,  // a connection that RDMA cannot carry is closed
};

struct RdmaSettings {
  // Names of devices, with commas between them, each perhaps with `:port`; empty: all.
  std::string devices;
  // Whose connections these are: lane i takes the i-th usable port, round and round.
  std::uint32_t lane = 0;
  // Of the kernel's nodes, uverbs0 and so on.
  std::string node_directory = "/dev/infiniband";
  int gid_index = -1;     // -1: the best of the port's table
  std::uint32_t mtu = 0;  // bytes of a packet's payload; 0: what the port is set to
  std::uint8_t service_level = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t timeout = 14;         // of a packet: 4.096 us times two to this power
  std::uint8_t retry_count = 6;      // then the queue pair fails; 7 is for ever to Soft-RoCE
  std::uint32_t receive_slots = 64;  // of each connection, for messages from the peer
  std::uint32_t slot_bytes = 64 << 10;
  std::uint64_t max_registered_bytes = 8ull << 30;  // of clients' and the lane's memory, per lane
  bool payload_crc = true;
  Choice choice = Choice::if_possible;
  // For those that are treated otherwise, by net::canonical_host().
  std::map<std::string, Choice> peer_choices;
  // Of the side that connects; the one that offers gives up after two thirds of it.
  std::uint64_t setup_timeout_ns = 900'000'000;
  std::uint64_t retry_ns = 10'000'000'000;  // after a failure RDMA is tried again
};

}  // namespace tern::rdma
