#pragma once

#include <cstdint>

#include "daemon/conductor/client.h"
#include "daemon/conductor/outlets.h"
#include "daemon/service/log_limit.h"

namespace tern::daemon {

// What clients say of their devices (docs/shm-layout.md, "DeviceReportPacket"), for the operator:
// the daemon itself has no use of a device and nothing to compare it with. So it keeps the last
// report of each device, whose numbers are checked to be such that they can be added.
class DeviceReports {
 public:
  explicit DeviceReports(const Outlets& outlets) : outlets_(outlets) {}

  // Null, or what is wrong with the report, which then changes nothing.
  const char* take(Client& client, const shm::DeviceReportPacket& packet);
  // The client is gone, and holds nothing any more.
  void forget(Client& client);

 private:
  void count_held(const shm::DeviceReportPacket& before, const shm::DeviceReportPacket& after);
  void tell_of_pinning(const Client& client, const shm::DeviceReportPacket& said);

  Outlets outlets_;
  LogLimit<std::uint32_t> log_;  // by user
};

}  // namespace tern::daemon
