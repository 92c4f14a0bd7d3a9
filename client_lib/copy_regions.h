#pragma once

// Regions that the daemon has made for copies that the arena has no room for. They are kept for
// later copies. Guarded by: the client's mutex.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "client_lib/arena.h"
#include "client_lib/questions.h"
#include "client_lib/regions.h"

namespace tern::client_lib {

class CopyRegions {
 public:
  struct Place {
    std::uint32_t region = 0;
    std::uint64_t offset = 0;
    std::byte* memory = nullptr;  // of the region, until the place is freed
  };

  // Nothing: no region has so much room.
  std::optional<Place> allocate(std::uint64_t bytes);
  void free(std::uint32_t region, std::uint64_t offset) noexcept;

  // REQUIRES, for both: the mutex, the client's, is not held.
  // Asks for a region of so many bytes, in place of those that have less and hold nothing.
  // `features`: of the daemon.
  Status make(Questions& questions, std::mutex& mutex, std::uint32_t features, std::uint64_t bytes);
  // Gives back those that hold nothing. False: there is none.
  bool give_back(Questions& questions, std::mutex& mutex) {
    return give_back_smaller(questions, mutex, std::numeric_limits<std::uint64_t>::max());
  }

  // In a forked child.
  void abandon() noexcept {
    for (Entry& entry : entries_) entry.region.segment.abandon();
  }

 private:
  struct Entry {
    explicit Entry(Regions::Region made)
        : region(std::move(made)), room(region.segment.arena_bytes()) {}

    Regions::Region region;
    Arena room;
  };

  bool give_back_smaller(Questions& questions, std::mutex& mutex, std::uint64_t bytes);

  std::vector<Entry> entries_;
};

}  // namespace tern::client_lib
