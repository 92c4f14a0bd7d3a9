#include <fmt/format.h>

#include "bench/link_transport.h"
#include "rdma/rdma_transport.h"

namespace tern::bench {

Result<std::unique_ptr<net::Transport>> make_rdma(const RdmaOptions& options, net::Transport& tcp,
                                                  net::EventLoop& loop, const tern::Clock& clock) {
  rdma::RdmaSettings settings;
  settings.devices = options.device;
  settings.gid_index = options.gid_index;
  settings.payload_crc = options.payload_crc;
  settings.slot_bytes = options.slot_bytes;
  settings.choice = rdma::Choice::required;
  settings.setup_timeout_ns = 10'000'000'000;
  if (auto device = rdma::Device::open(settings); !device) {
    return tl::unexpected(device.error());
  }
  return std::make_unique<rdma::RdmaTransport>(tcp, loop, clock, settings);
}

std::string rdma_counters(const net::Transport& transport) {
  const auto* rdma = dynamic_cast<const rdma::RdmaTransport*>(&transport);
  if (rdma == nullptr) return {};
  const rdma::DataPathCounters counters = rdma->data_path_counters();
  return fmt::format(
      R"("messages_sent": {}, "posts": {}, "inline_messages": {}, "copied_bytes": {})",
      counters.messages_sent, counters.posts, counters.inline_messages, counters.copied_bytes);
}

}  // namespace tern::bench
