#include "client_lib/copy_regions.h"

#include <utility>

#include "shm/layout.h"

namespace tern::client_lib {

Status CopyRegions::make(Questions& questions, std::mutex& mutex, std::uint32_t features,
                         std::uint64_t bytes) {
  if ((features & shm::kFeatureRegions) == 0) return fail(Errc::unsupported, "it is too old");
  std::unique_lock lock(mutex);
  const std::vector<Regions::Region> too_small = drop_smaller(bytes);
  lock.unlock();
  for (const Regions::Region& region : too_small) (void)questions.free_region(region.number);
  Result<Regions::Region> made = Regions::make(questions, bytes);
  if (!made) return tl::unexpected(std::move(made.error()));
  lock.lock();
  entries_.push_back({std::move(*made), false});
  return {};
}

std::vector<Regions::Region> CopyRegions::drop_smaller(std::uint64_t bytes) {
  std::vector<Regions::Region> dropped;
  std::vector<Entry> kept;
  for (Entry& entry : entries_) {
    if (entry.is_used || entry.bytes() >= bytes) {
      kept.push_back(std::move(entry));
    } else {
      dropped.push_back(std::move(entry.region));
    }
  }
  entries_ = std::move(kept);
  return dropped;
}

}  // namespace tern::client_lib
