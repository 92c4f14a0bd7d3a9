#pragma once

#include <atomic>
#include <latch>
#include <memory>
#include <thread>

#include "daemon/lane/lane.h"
#include "daemon/service/processor_wait.h"
#include "daemon/service/sign_of_life.h"
#include "net/event_loop.h"

namespace tern::daemon {

// Runs one lane: works while there is work, spins for a while, then sleeps in the lane's event
// loop.
class LaneThread {
 public:
  struct Idle {
    std::uint64_t spin_ns = 0;
    bool pin = false;
    // Spinning helps only while every lane and every client can have a core of its own.
    std::uint32_t cores = 1;
    std::uint32_t lanes = 1;
  };

  // REQUIRES: loop and lane outlive the thread.
  LaneThread(net::EventLoop& loop, Lane& lane, const Clock& clock, Idle idle)
      : loop_(loop), lane_(lane), clock_(clock), idle_(idle) {}
  ~LaneThread() { stop(); }

  // Once; when it returns the thread runs, and holds the descriptors that it needs.
  void start();
  void stop();  // and wait for its end
  void wake() noexcept { loop_.wake(); }
  SignOfLife& sign_of_life() noexcept { return sign_of_life_; }

 private:
  void prepare();
  void run();

  net::EventLoop& loop_;
  Lane& lane_;
  const Clock& clock_;
  Idle idle_;
  std::atomic<bool> stop_{false};
  SignOfLife sign_of_life_;
  ProcessorWait processor_wait_;
  std::latch begun_{1};
  std::thread thread_;
};

}  // namespace tern::daemon
