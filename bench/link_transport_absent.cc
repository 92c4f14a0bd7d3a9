#include "bench/link_transport.h"

namespace tern::bench {

Result<std::unique_ptr<net::Transport>> make_rdma(const RdmaOptions&, net::Transport&,
                                                  net::EventLoop&, const tern::Clock&) {
  return fail(Errc::unsupported, "this build has no RDMA (libibverbs was not there)");
}

std::string rdma_counters(const net::Transport&) { return {}; }

}  // namespace tern::bench
