#include "daemon/lane/group_clients.h"

#include <algorithm>

namespace tern::daemon {

void GroupClients::attach(LaneClients& clients) {
  std::ranges::transform(core_.setup().local_clients, clients_.begin(),
                         [&](std::uint64_t client) { return clients.find(client); });
}

bool GroupClients::has(const LaneClient& client) const noexcept {
  return std::ranges::find(clients_, &client) != clients_.end();
}

std::uint32_t GroupClients::local_rank(const LaneClient& client) const noexcept {
  return static_cast<std::uint32_t>(std::ranges::find(clients_, &client) - clients_.begin());
}

void GroupClients::forget(const LaneClient& client) noexcept {
  std::ranges::replace_if(
      clients_, [&](const LaneClient* one) { return one == &client; }, nullptr);
}

bool GroupClients::fail_if_pages_are_lost(collective::OpId op) {
  const std::vector<std::uint32_t>& ranks = core_.setup().shape.ranks[core_.self()];
  for (std::size_t i = 0; i < ranks.size() && !core_.op(op).failed(); ++i) {
    if (clients_[i] == nullptr || !clients_[i]->has_lost_pages()) continue;
    core_.ops().fail(op, {Errc::rank_lost, ranks[i], "a page of the rank's arena is not there"});
  }
  return core_.op(op).failed();
}

}  // namespace tern::daemon
