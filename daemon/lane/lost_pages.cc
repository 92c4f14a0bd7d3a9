#include "daemon/lane/lost_pages.h"

namespace tern::daemon {

bool LostPages::fail(collective::OpId op) {
  const std::vector<std::uint32_t>& ranks = core_.setup().shape.ranks[core_.self()];
  for (std::size_t i = 0; i < ranks.size() && !core_.op(op).failed; ++i) {
    if (clients_[i] == nullptr || !clients_[i]->has_lost_pages()) continue;
    core_.ops().fail(op, {Errc::rank_lost, ranks[i], "a page of the rank's arena is not there"});
  }
  return core_.op(op).failed;
}

}  // namespace tern::daemon
