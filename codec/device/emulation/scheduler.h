#pragma once

#include <cstdint>
#include <vector>

#include "codec/device/emulation/launch.h"

namespace tern::codec::device::emulation {

// Chooses the next thread of a block among those that can go on.
class Scheduler {
 public:
  static constexpr std::uint32_t kNobody = 0xffffffff;

  Scheduler(const Schedule& schedule, std::uint32_t warps);

  void set_ready(std::uint32_t thread, bool ready) noexcept;
  std::uint32_t next() noexcept;
  // A new order of the warps.
  void shuffle() noexcept;
  // The order of a launch's blocks.
  std::vector<std::uint32_t> blocks(std::uint32_t count) noexcept;

 private:
  std::uint64_t draw() noexcept;
  std::uint32_t any_lane(std::uint32_t warp) noexcept;

  Schedule schedule_;
  std::uint64_t state_;
  std::vector<std::uint32_t> ready_;  // a mask of lanes for each warp
  std::vector<std::uint32_t> order_;  // of warps
};

}  // namespace tern::codec::device::emulation
