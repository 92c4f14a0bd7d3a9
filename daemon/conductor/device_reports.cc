#include "daemon/conductor/device_reports.h"

#include <algorithm>
#include <utility>

#include "daemon/service/log.h"

namespace tern::daemon {
namespace {

const char* objection_to(const shm::DeviceReportPacket& said) {
  if (said.device >= shm::kMaxDevices) return "it reported a device above 15";
  if (std::max(said.device_bytes, said.pinned_bytes) > shm::kMaxReportedBytes) {
    return "it reported more memory than any machine has";
  }
  return shm::terminated(said.pinning_problem) ? nullptr : "it reported a text without an end";
}

}  // namespace

const char* DeviceReports::take(Client& client, const shm::DeviceReportPacket& packet) {
  if (const char* const problem = objection_to(packet)) return problem;
  ++outlets_.counters->device_reports;
  if (packet.pinning_failures != 0 && !std::exchange(client.has_not_pinned, true)) {
    ++outlets_.counters->clients_not_pinned;
  }
  ReportedDevice& device = client.devices[packet.device];
  if (packet.pinning_failures > device.said.pinning_failures) tell_of_pinning(client, packet);
  count_held(device.said, packet);
  device = {packet, outlets_.clock.now_ns()};
  return nullptr;
}

void DeviceReports::forget(Client& client) {
  for (const auto& [number, device] : client.devices) count_held(device.said, {});
  client.devices.clear();
}

// The counters are what all devices hold together.
void DeviceReports::count_held(const shm::DeviceReportPacket& before,
                               const shm::DeviceReportPacket& after) {
  outlets_.counters->device_bytes += after.device_bytes - before.device_bytes;
  outlets_.counters->device_pinned_bytes += after.pinned_bytes - before.pinned_bytes;
}

void DeviceReports::tell_of_pinning(const Client& client, const shm::DeviceReportPacket& said) {
  if (!log_.admits(client.credentials.uid, outlets_.clock.now_ns())) return;
  log_about({.job = client.job}, spdlog::level::warn,
            "client pid {} uid {} could not pin memory for its device {}: {}",
            client.credentials.pid, client.credentials.uid, said.device, said.pinning_problem);
}

}  // namespace tern::daemon
