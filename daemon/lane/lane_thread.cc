#include "daemon/lane/lane_thread.h"

#include <pthread.h>
#include <sched.h>

#include <string>

namespace tern::daemon {

void LaneThread::start() {
  thread_ = std::thread([this] {
    prepare();
    begun_.count_down();
    run();
  });
  begun_.wait();
}

void LaneThread::stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  loop_.wake();
  thread_.join();
}

void LaneThread::prepare() {
  const std::uint32_t number = lane_.settings().lane;
  pthread_setname_np(pthread_self(), ("tern-lane" + std::to_string(number)).c_str());
  if (idle_.pin) {
    // The number-th core of those this process may use.
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
      std::uint32_t seen = 0;
      for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
        if (!CPU_ISSET(core, &allowed) || seen++ != number) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
      }
    }
  }
  lane_.turns().subtract(processor_wait_);
}

void LaneThread::run() {
  std::uint64_t idle_since = 0;
  std::uint64_t now = clock_.now_ns();
  while (!stop_.load(std::memory_order_acquire)) {
    sign_of_life_.answer();
    const Lane::Round round = lane_.do_work(now);
    now = round.ended_ns;
    if (round.work > 0) {
      idle_since = 0;
      continue;
    }
    if (idle_since == 0) idle_since = now;
    const bool may_spin = idle_.cores > idle_.lanes + lane_.client_count();
    if (may_spin && now - idle_since < idle_.spin_ns) continue;
    lane_.turns().pause(now);
    if (!lane_.prepare_sleep()) continue;
    const std::uint64_t deadline = lane_.next_deadline_ns();
    // Who asks or stops it during the turn may have been drained with it.
    sign_of_life_.answer();
    if (deadline > now && !stop_.load(std::memory_order_acquire)) loop_.wait(deadline - now);
    lane_.end_sleep();
    idle_since = 0;
    now = clock_.now_ns();
  }
}

}  // namespace tern::daemon
