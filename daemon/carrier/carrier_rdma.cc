#include <algorithm>

#include "daemon/carrier/carrier.h"
#include "daemon/config/settings.h"
#include "rdma/device.h"
#include "rdma/rdma_transport.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kMinSetupNs = 20'000'000;

rdma::Choice choice_of(const std::string& transport) {
  if (transport == "tcp") return rdma::Choice::never;
  return transport == "rdma" ? rdma::Choice::required : rdma::Choice::if_possible;
}

rdma::RdmaSettings rdma_settings(const Config& config) {
  rdma::RdmaSettings settings;
  settings.devices = config.rdma_devices;
  settings.gid_index = config.rdma_gid_index == 255 ? -1 : static_cast<int>(config.rdma_gid_index);
  settings.mtu = static_cast<std::uint32_t>(config.rdma_mtu_bytes);
  settings.service_level = static_cast<std::uint8_t>(config.rdma_service_level);
  settings.traffic_class = static_cast<std::uint8_t>(config.rdma_traffic_class);
  settings.timeout = static_cast<std::uint8_t>(config.rdma_timeout_exponent);
  settings.retry_count = static_cast<std::uint8_t>(config.rdma_retry_count);
  settings.receive_slots = config.rdma_receive_slots;
  settings.slot_bytes = static_cast<std::uint32_t>(config.rdma_slot_bytes);
  settings.max_registered_bytes = config.rdma_max_registered_bytes;
  settings.payload_crc = config.rdma_payload_crc;
  settings.retry_ns = config.rdma_retry_ns;
  // Within an attempt of the link to connect, which gives up after half of resume_timeout.
  settings.setup_timeout_ns =
      std::min(settings.setup_timeout_ns, std::max(kMinSetupNs, config.resume_timeout_ns * 2 / 5));
  // Nothing that was to be encrypted leaves in the clear unless the settings say so.
  const bool forbidden = encrypts_peers(config) && !config.rdma_unencrypted;
  settings.choice = forbidden ? rdma::Choice::never : choice_of(config.transport);
  // check_config() has read it before.
  const auto peers = parse_peer_transports(config.peer_transports);
  for (const auto& [host, transport] : *peers) {
    settings.peer_choices[net::canonical_host(host)] =
        forbidden ? rdma::Choice::never : choice_of(transport);
  }
  return settings;
}

bool wants_rdma(const rdma::RdmaSettings& settings) {
  bool wants = settings.choice != rdma::Choice::never;
  for (const auto& [host, choice] : settings.peer_choices) {
    wants = wants || choice != rdma::Choice::never;
  }
  return wants;
}

}  // namespace

Result<std::string> probe_carriers(const Config& config) {
  rdma::RdmaSettings settings = rdma_settings(config);
  if (!wants_rdma(settings)) {
    const bool by_security = config.transport != "tcp" && encrypts_peers(config);
    return std::string(by_security ? "TCP inside TLS; RDMA would not encrypt (rdma_unencrypted)"
                                   : "TCP, as configured");
  }
  std::string names;
  for (settings.lane = 0; settings.lane < config.lanes; ++settings.lane) {
    const auto device = rdma::Device::open(settings);
    if (!device) {
      if (settings.choice == rdma::Choice::required) {
        return fail(device.error().code, "transport = \"rdma\": " + device.error().text);
      }
      return "TCP: " + device.error().text;
    }
    names += (names.empty() ? "" : ", ") + (*device)->name();
  }
  return "RDMA over " + names + " where the peer has it too, " +
         (encrypts_peers(config) ? "tensors not encrypted there, else TCP inside TLS" : "else TCP");
}

std::unique_ptr<net::Transport> make_rdma_transport(const Config& config, const LaneCarriage& of) {
  rdma::RdmaSettings settings = rdma_settings(config);
  if (!wants_rdma(settings)) return nullptr;
  settings.lane = of.lane;
  return std::make_unique<rdma::RdmaTransport>(of.tcp, of.loop, of.clock, settings);
}

}  // namespace tern::daemon
