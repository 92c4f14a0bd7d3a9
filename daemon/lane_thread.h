#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "daemon/lane.h"
#include "net/event_loop.h"

namespace tern::daemon {

// Runs one lane: works while there is work, spins for a while, then sleeps in the lane's event loop.
class LaneThread {
 public:
  struct Idle {
    std::uint64_t spin_ns = 0;
    bool pin = false;
    // How many threads want to run at once: spinning stops where cores are not more than that.
    std::uint32_t cores = 1;
  };

  // REQUIRES: loop and lane outlive the thread.
  LaneThread(net::EventLoop& loop, Lane& lane, const Clock& clock, Idle idle)
      : loop_(loop), lane_(lane), clock_(clock), idle_(idle) {}
  ~LaneThread() { stop(); }

  void start();
  void stop();  // and wait for its end
  void wake() noexcept { loop_.wake(); }
  // Told by the conductor; spinning is on while lanes and clients leave a core free.
  void set_clients(std::uint32_t count) noexcept { clients_.store(count, std::memory_order_relaxed); }

 private:
  void run();

  net::EventLoop& loop_;
  Lane& lane_;
  const Clock& clock_;
  Idle idle_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> clients_{0};
  std::thread thread_;
};

}  // namespace tern::daemon
