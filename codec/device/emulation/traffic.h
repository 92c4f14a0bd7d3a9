#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "codec/device/emulation/site.h"

// What the accesses of a warp cost: global memory moves sectors of 32 bytes, and shared memory
// serves one word of each of its 32 banks at a time. A warp's access is what its lanes do at one
// line of the source for the n-th time.
namespace tern::codec::device::emulation {

struct Traffic {
  std::uint64_t global_bytes_read = 0;  // whole sectors
  std::uint64_t global_bytes_written = 0;
  std::uint64_t global_bytes_asked = 0;  // by lanes, both ways
  std::uint64_t shared_accesses = 0;     // of warps, in the parts that the hardware makes of them
  std::uint64_t shared_passes = 0;       // one for each access without conflicts
  std::uint64_t global_bytes_wide = 0;   // of these, by 16 at a time

  std::uint64_t global_bytes() const noexcept { return global_bytes_read + global_bytes_written; }
  double passes_per_access() const noexcept {
    return shared_accesses == 0
               ? 0.0
               : static_cast<double>(shared_passes) / static_cast<double>(shared_accesses);
  }
};

struct LaneAccess {
  bool is_global;
  bool is_write;
  std::uint16_t bytes;
  std::uint64_t address;
};

// Collects the accesses of one block.
class TrafficMeter {
 public:
  explicit TrafficMeter(std::uint32_t threads) : lanes_(threads) {}

  void note(std::uint32_t thread, const Site& site, const LaneAccess& access);

  // Adds up, and begins anew.
  void settle(Traffic& traffic);

 private:
  struct Record {
    std::uint32_t warp;
    std::uint32_t site;
    std::uint32_t time;  // the n-th of the lane at the site
    LaneAccess access;
  };

  std::uint32_t number_of(const Site& site);

  std::vector<std::vector<std::uint32_t>> lanes_;  // for each thread and site, how often so far
  std::map<std::pair<const char*, int>, std::uint32_t> sites_;
  std::vector<Record> records_;
};

}  // namespace tern::codec::device::emulation
