#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "daemon/lane/lane_exchange.h"
#include "shm/packet_socket.h"

namespace tern::daemon {

class ReplayReading;

enum class Sealing : std::uint8_t { under_way, done, refused };

// Memory that a client has beside its arena.
struct ClientRegion {
  RegionMemory memory;
  std::shared_ptr<std::atomic<Sealing>> sealing;  // null: the client has not said that it has it
  // What is sealed; who seals it later holds it no longer than it is here.
  std::shared_ptr<Fd> file;
  std::uint64_t request = 0;        // that waits for an answer
  std::uint32_t lanes_dropped = 0;  // that have let go of it
  bool is_open = false;             // lanes know it
  bool is_freeing = false;
};

// Lanes may still use the memory of one that is not connected. One that is dropped can be told how
// its goodbye went, one that has closed its connection cannot.
enum class ClientPresence : std::uint8_t { connected, dropped, closed };

// The last report of one of its devices.
struct ReportedDevice {
  shm::DeviceReportPacket said{};
  std::uint64_t heard_ns = 0;
};

// A connected process, from its connection to the last use of its memory. Each field is written by
// the part that it stands under; Clients frees all of it in the end.
struct Client {
  // ---- Clients ----
  std::uint64_t id = 0;
  shm::PeerCredentials credentials;
  std::string job;
  std::unique_ptr<ClientMemory> memory;  // after the hello
  std::uint64_t arena_bytes = 0;
  std::uint64_t connected_ns = 0;
  std::uint32_t lanes_dropped = 0;  // that have let go of its memory
  // Of its memory, which begins with its first request; null before.
  std::shared_ptr<std::atomic<Sealing>> sealing;
  std::shared_ptr<Fd> file;                  // as in ClientRegion
  std::vector<std::vector<std::byte>> held;  // requests that wait for the seal or a log
  bool is_admitted = false;                  // the lanes know it

  // ---- Regions; Clients, when a region or the client goes ----
  std::map<std::uint32_t, std::unique_ptr<ClientRegion>> regions;
  std::uint64_t region_bytes = 0;
  std::uint32_t next_region = 1;

  // ---- DeviceReports ----
  std::map<std::uint32_t, ReportedDevice> devices;  // at most shm::kMaxDevices
  bool has_not_pinned = false;                      // it said so, at some time

  // ---- TensorRegistry ----
  // Of the log that its first request that waits names; null: it names none.
  std::shared_ptr<ReplayReading> reading;

  // ---- Conductor ----
  bool has_joined = false;               // a group, at some time
  std::optional<std::uint64_t> goodbye;  // the request by which it disconnects in order
  ClientPresence presence = ClientPresence::connected;

  // What it asks is dropped unread.
  bool is_going() const noexcept { return presence != ClientPresence::connected; }
  // All that it may fill.
  std::uint64_t memory_bytes() const noexcept { return arena_bytes + region_bytes; }
};

}  // namespace tern::daemon
