#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "client_lib/questions.h"
#include "shm/segment.h"

namespace tern::client_lib {

// The memory that this process has of the daemon beside its arena. Guarded by: the client's mutex,
// but for make().
class Regions {
 public:
  struct Region {
    std::uint32_t number = 0;
    shm::Segment segment;
  };
  // Asks the daemon for it, maps it, and has lanes know it.
  static Result<Region> make(Questions& questions, std::uint64_t bytes);

  void add(Region region) { regions_.push_back(std::move(region)); }
  // The region that begins there.
  std::optional<std::uint32_t> find(const void* memory) const noexcept;
  // REQUIRES: there is one.
  Region take(std::uint32_t number);
  // In a forked child.
  void abandon() noexcept;

 private:
  std::vector<Region> regions_;
};

}  // namespace tern::client_lib
