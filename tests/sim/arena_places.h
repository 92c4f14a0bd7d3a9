#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "shm/segment.h"

namespace tern::sim {

// Which bytes of its arena a client has given out. Those have their pages: the daemon finds none
// for a client.
class ArenaPlaces {
 public:
  ArenaPlaces() = default;
  explicit ArenaPlaces(std::span<std::byte> arena) : arena_(arena) {
    have_pages(std::min<std::uint64_t>(kUnplacedBytes, arena.size()));
  }

  // On a cache line; never given back before forget().
  std::uint64_t allocate(std::uint64_t bytes) {
    const std::uint64_t offset = used_;
    used_ += (bytes + 63) / 64 * 64;
    TERN_CHECK(used_ <= arena_.size());
    have_pages(used_);
    return offset;
  }
  void forget() noexcept { used_ = 0; }

 private:
  // Of requests that say no place, and so mean the beginning.
  static constexpr std::uint64_t kUnplacedBytes = 256 << 10;

  void have_pages(std::uint64_t end) {
    if (end <= there_) return;
    TERN_CHECK(shm::populate(arena_.subspan(there_, end - there_)));
    there_ = end;
  }

  std::span<std::byte> arena_;
  std::uint64_t used_ = 0;
  std::uint64_t there_ = 0;
};

}  // namespace tern::sim
