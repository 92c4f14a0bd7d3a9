#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codec/device/emulation/site.h"
#include "codec/device/emulation/traffic.h"

// Runs a kernel on this processor, one fibre for each of its threads, in an order that a seed
// decides, and reports what the kernel must not do.
namespace tern::codec::device::emulation {

// Who goes on when a thread waits. Threads change places at barriers and exchanges only: what lies
// between is compared by epochs (memory_watch.h).
struct Schedule {
  enum class Order : std::uint8_t {
    uniform,        // any thread
    warp_priority,  // the first of the warps that can, in an order drawn again at each barrier
    starved_warp,   // the same, and one warp always last
    reversed,       // the last thread of the last warp, the last block first
  };
  Order order = Order::uniform;
  std::uint64_t seed = 1;
};

struct LaunchShape {
  std::uint32_t blocks = 1;
  std::uint32_t threads = 32;  // of a block, whole warps
};

struct LaunchOptions {
  Schedule schedule;
  bool meter_traffic = false;
  std::optional<Site> without_barrier;  // a mutant: the barriers at this place do nothing
  std::uint64_t most_switches = std::uint64_t{1} << 32;
};

struct LaunchReport {
  std::string finding;           // empty: none. The launch ended there
  Traffic traffic;               // if it was metered
  std::vector<Site> barriers;    // where threads waited for each other, in order of appearance
  std::size_t shared_bytes = 0;  // the most of a block
};

// Kernels of one thread of this process at a time.
LaunchReport launch(const LaunchShape& shape, const LaunchOptions& options,
                    const std::function<void()>& kernel);

}  // namespace tern::codec::device::emulation
