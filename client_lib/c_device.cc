// What an operator is told of devices, as C sees it.

#include <cstring>

#include "client_lib/handles.h"
#include "client_lib/sized_struct.h"

using namespace tern::client_lib;
namespace shm = tern::shm;

namespace {

const char* objection_to(const tern_device_report& report) {
  if (report.device >= shm::kMaxDevices) return "device must be 0 to 15";
  if (report.device_bytes > shm::kMaxReportedBytes ||
      report.pinned_bytes > shm::kMaxReportedBytes) {
    return "device_bytes or pinned_bytes is above 2^48";
  }
  return nullptr;
}

shm::DeviceReportPacket packet_of(const tern_device_report& report) {
  auto packet = shm::make_packet<shm::DeviceReportPacket>(shm::PacketKind::device_report, 0);
  packet.device = report.device;
  packet.device_bytes = report.device_bytes;
  packet.pinned_bytes = report.pinned_bytes;
  packet.pinning_failures = report.pinning_failures;
  packet.operations = report.operations;
  packet.failures = report.failures;
  packet.encodes = report.encodes;
  packet.encode_ns = report.encode_ns;
  packet.last_encode_ns = report.last_encode_ns;
  packet.decodes = report.decodes;
  packet.decode_ns = report.decode_ns;
  packet.last_decode_ns = report.last_decode_ns;
  if (report.pinning_problem != nullptr) {
    std::strncpy(packet.pinning_problem, report.pinning_problem, sizeof packet.pinning_problem - 1);
  }
  return packet;
}

}  // namespace

tern_status tern_report_device(tern_client* client, const tern_device_report* report) {
  if (client == nullptr || report == nullptr) return refuse("client or report is NULL");
  return guarded(*client, [&]() -> tern_status {
    tern_device_report known = TERN_DEVICE_REPORT_INIT;
    if (const tern_status status = read_struct(report, "report", known); status != TERN_OK) {
      return status;
    }
    if (const char* const problem = objection_to(known)) return refuse(problem);
    return said(client->client->report_device(packet_of(known)));
  });
}
