#include "client_lib/copy_regions.h"

#include <algorithm>
#include <utility>

#include "shm/layout.h"

namespace tern::client_lib {

std::optional<CopyRegions::Place> CopyRegions::allocate(std::uint64_t bytes) {
  for (Entry& entry : entries_) {
    const std::optional<std::uint64_t> offset = entry.room.allocate(bytes);
    if (offset) return Place{entry.region.number, *offset, entry.region.segment.arena().data()};
  }
  return std::nullopt;
}

void CopyRegions::free(std::uint32_t region, std::uint64_t offset) noexcept {
  for (Entry& entry : entries_) {
    if (entry.region.number == region) entry.room.free(offset);
  }
}

Status CopyRegions::make(Questions& questions, std::mutex& mutex, std::uint32_t features,
                         std::uint64_t bytes) {
  if ((features & shm::kFeatureRegions) == 0) {
    return fail(Errc::unsupported, "this ternd is too old");
  }
  give_back_smaller(questions, mutex, bytes);
  Result<Regions::Region> made = Regions::make(questions, bytes);
  if (!made) return tl::unexpected(std::move(made.error()));
  const std::lock_guard lock(mutex);
  entries_.emplace_back(std::move(*made));
  return {};
}

bool CopyRegions::give_back_smaller(Questions& questions, std::mutex& mutex, std::uint64_t bytes) {
  std::vector<Regions::Region> idle;
  {
    const std::lock_guard lock(mutex);
    const auto first =
        std::stable_partition(entries_.begin(), entries_.end(), [bytes](const Entry& entry) {
          return entry.room.used_bytes() != 0 || entry.region.segment.arena_bytes() >= bytes;
        });
    for (auto entry = first; entry != entries_.end(); ++entry) {
      idle.push_back(std::move(entry->region));
    }
    entries_.erase(first, entries_.end());
  }
  for (const Regions::Region& region : idle) (void)questions.free_region(region.number);
  return !idle.empty();
}

}  // namespace tern::client_lib
