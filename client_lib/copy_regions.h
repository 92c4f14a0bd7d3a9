#pragma once

// Regions that the daemon has made for copies that the arena has no room for. Each serves one op at
// a time, and is kept for the next one. Guarded by: the client's mutex.

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "client_lib/questions.h"
#include "client_lib/regions.h"

namespace tern::client_lib {

class CopyRegions {
 public:
  struct Place {
    std::uint32_t region = 0;
    std::byte* memory = nullptr;  // as long as the region is in use
  };

  // Asks for one of so many bytes, in place of those that have less and that nobody uses.
  // `features`: of the daemon. REQUIRES: the mutex, the client's, is not held.
  Status make(Questions& questions, std::mutex& mutex, std::uint32_t features, std::uint64_t bytes);

  // The smallest that is free and has so much; it is in use until give(). Nothing: none has.
  std::optional<Place> take(std::uint64_t bytes) noexcept {
    Entry* best = nullptr;
    for (Entry& entry : entries_) {
      if (entry.is_used || entry.bytes() < bytes) continue;
      if (best == nullptr || entry.bytes() < best->bytes()) best = &entry;
    }
    if (best == nullptr) return std::nullopt;
    best->is_used = true;
    return Place{best->region.number, best->region.segment.arena().data()};
  }
  void give(std::uint32_t region) noexcept {
    for (Entry& entry : entries_) {
      if (entry.region.number == region) entry.is_used = false;
    }
  }
  // In a forked child.
  void abandon() noexcept {
    for (Entry& entry : entries_) entry.region.segment.abandon();
  }

 private:
  struct Entry {
    Regions::Region region;
    bool is_used = false;

    std::uint64_t bytes() const noexcept { return region.segment.arena_bytes(); }
  };

  std::vector<Regions::Region> drop_smaller(std::uint64_t bytes);

  std::vector<Entry> entries_;
};

}  // namespace tern::client_lib
