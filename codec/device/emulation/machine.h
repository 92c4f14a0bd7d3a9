#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codec/device/emulation/fibre.h"
#include "codec/device/emulation/launch.h"
#include "codec/device/emulation/memory_watch.h"
#include "codec/device/emulation/scheduler.h"
#include "codec/device/emulation/shared_memory.h"
#include "codec/device/emulation/traffic.h"

namespace tern::codec::device::emulation {

inline constexpr std::uint32_t kWarpLanes = 32;

// What lanes of a warp do with each other's values.
struct Exchange {
  enum class Kind : std::uint8_t { barrier, take, ballot, largest };
  Kind kind;
  std::uint32_t mask;  // the lanes that meet
  std::uint64_t value = 0;
  std::uint32_t source = 0;  // take: whose value
};

// One block of a launch while it runs: its threads, and what they wait for.
class Machine {
 public:
  Machine(const LaunchShape& shape, const LaunchOptions& options, LaunchReport& report);

  void run(std::uint32_t block, std::uint32_t first_epoch, const std::function<void()>& kernel);
  std::uint32_t last_epoch() const noexcept { return epoch_; }

  // From here on for the thread that runs.
  static Machine& current() noexcept;
  std::uint32_t thread() const noexcept { return running_; }
  std::uint32_t threads() const noexcept { return shape_.threads; }
  std::uint32_t block() const noexcept { return block_; }
  std::uint32_t blocks() const noexcept { return shape_.blocks; }

  void barrier(const Site& site);
  std::uint64_t exchange(const Exchange& what, const Site& site);

  SharedArray& shared_array(std::size_t number, const SharedShape& shape, const Site& site);
  void touch_shared(SharedArray& array, Touch touch, const Span& elements, const Site& site);
  void touch_global(const void* address, std::size_t bytes, Touch touch, const Site& site);

 private:
  enum class State : std::uint8_t { ready, at_barrier, at_exchange, done };

  struct Lane {
    Fibre fibre;
    State state = State::ready;
    Site site{"", 0};
    Exchange exchange{};
    std::uint64_t result = 0;
  };

  static void enter(void* machine);
  void start(std::uint32_t block, std::uint32_t first_epoch);
  void wait(State state, const Site& site);
  void go_on();
  bool is_removed(const Site& site);
  void release_barrier();
  void complete(std::uint32_t warp, std::uint32_t mask);
  void set_state(std::uint32_t thread, State state);
  std::string stuck() const;
  Moment now() const noexcept;

  const LaunchShape& shape_;
  const LaunchOptions& options_;
  LaunchReport& report_;
  const std::function<void()>* kernel_ = nullptr;
  Stacks& stacks_;
  std::unique_ptr<Lane[]> lanes_;
  Scheduler scheduler_;
  SharedMemory shared_;
  TrafficMeter meter_;
  Fibre program_;
  std::uint32_t block_ = 0;
  std::uint32_t running_ = 0;
  std::uint32_t waiting_ = 0;  // at the barrier
  std::uint32_t done_ = 0;
  std::uint32_t first_epoch_ = 1;
  std::uint32_t epoch_ = 1;
  std::vector<std::uint32_t> warp_epochs_;
  std::uint64_t switches_ = 0;
};

}  // namespace tern::codec::device::emulation
