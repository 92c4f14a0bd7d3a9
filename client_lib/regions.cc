#include "client_lib/regions.h"

#include <algorithm>

namespace tern::client_lib {

Result<Regions::Region> Regions::make(Questions& questions, std::uint64_t bytes) {
  std::vector<Fd> fds;
  const Result<shm::RegionCreatedPacket> made = questions.create_region(bytes, fds);
  if (!made) return tl::unexpected(made.error());
  const auto give_back = [&](Error error) {
    (void)questions.free_region(made->region);
    return tl::unexpected(std::move(error));
  };
  Result<shm::Segment> segment = shm::Segment::map_region(std::move(fds[0]), made->segment_bytes);
  if (!segment) return give_back(std::move(segment.error()));
  segment->close_fd();
  if (segment->arena_bytes() < bytes) {
    return give_back({Errc::protocol_error, "ternd made too small a region"});
  }
  // Found by this process, as with the arena.
  if (Status found = shm::populate(segment->arena()); !found) {
    return give_back(std::move(found.error()));
  }
  if (Status opened = questions.open_region(made->region); !opened) {
    return give_back(std::move(opened.error()));
  }
  return Region{made->region, std::move(*segment)};
}

std::optional<std::uint32_t> Regions::find(const void* memory) const noexcept {
  for (const Region& region : regions_) {
    if (region.segment.arena().data() == memory) return region.number;
  }
  return std::nullopt;
}

Regions::Region Regions::take(std::uint32_t number) {
  const auto found = std::find_if(regions_.begin(), regions_.end(), [number](const Region& region) {
    return region.number == number;
  });
  Region taken = std::move(*found);
  regions_.erase(found);
  return taken;
}

void Regions::abandon() noexcept {
  for (Region& region : regions_) region.segment.abandon();
}

}  // namespace tern::client_lib
