#include "daemon/lane/pass_memories.h"

#include <algorithm>

namespace tern::daemon {

using collective::PassId;

PassMemory& PassMemories::begin(PassId pass) {
  if (passes_.size() < mailbox_.slots()) passes_.resize(mailbox_.slots());
  return passes_[pass] = {};
}

std::span<std::byte> PassMemories::bytes(PassId pass, const collective::PassStep& step) const {
  if (step.bytes == 0) return {};
  return host_bytes(passes_[pass].elements.slice(step.offset, step.bytes));
}

bool PassMemories::fail_if_pages_are_lost(PassId pass) {
  if (!passes_[pass].client->memory->segment.has_lost_pages()) return false;
  const auto& ranks = core_.setup().shape.ranks[core_.self()];
  const std::uint32_t rank = ranks[mailbox_.pass(pass).what.local_rank];
  mailbox_.fail(pass, {Errc::rank_lost, rank, "a page of the rank's arena is not there"});
  return true;
}

std::optional<collective::PassId> PassMemories::find(const LaneClient& client,
                                                     std::uint64_t ticket) const {
  const auto found = std::find_if(passes_.begin(), passes_.end(), [&](const PassMemory& pass) {
    return pass.client == &client && pass.ticket == ticket;
  });
  if (found == passes_.end()) return std::nullopt;
  return static_cast<collective::PassId>(found - passes_.begin());
}

}  // namespace tern::daemon
