#include "gpu/following_streams.h"

#include <algorithm>

namespace tern::gpu {

Result<const OwnStream*> FollowingStreams::behind(Stream program) {
  const auto known = std::ranges::find(followers_, program, &Follower::program);
  if (known != followers_.end()) return known->own.get();
  for (Follower& follower : followers_) {
    const auto idle = follower.own->is_idle();
    if (!idle) return tl::unexpected(idle.error());
    if (!*idle) continue;
    follower.program = program;
    return follower.own.get();
  }
  if (followers_.size() == kMost) {
    return fail(Errc::would_block,
                "operations of 32 streams have not been encoded yet: wait for a ticket, or enqueue "
                "on fewer streams");
  }
  auto own = OwnStream::create(driver_);
  if (!own) return tl::unexpected(own.error());
  followers_.push_back({program, std::move(*own)});
  return followers_.back().own.get();
}

}  // namespace tern::gpu
