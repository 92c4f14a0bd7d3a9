#include "daemon/carrier/carrier.h"

namespace tern::daemon {

Result<std::string> probe_carriers(const Config& config) {
  constexpr const char* kWithout = "this build has no RDMA (libibverbs was not there)";
  if (config.transport == "rdma") {
    return fail(Errc::unsupported,
                std::string("transport = \"rdma\": ") + kWithout +
                    "; install a build that has it, or set transport = \"auto\"");
  }
  return std::string(config.transport == "tcp" ? "TCP, as configured" : "TCP: ") +
         (config.transport == "tcp" ? "" : kWithout);
}

std::unique_ptr<net::Transport> make_rdma_transport(const Config&, const LaneCarriage&) {
  return nullptr;
}

}  // namespace tern::daemon
