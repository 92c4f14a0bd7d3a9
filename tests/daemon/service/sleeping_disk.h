#pragma once

#include <cstdint>
#include <latch>
#include <memory>
#include <thread>

#include "daemon/service/late_file.h"

namespace tern::daemon {

// Has files written for a user, once it has been woken.
class SleepingDisk {
 public:
  explicit SleepingDisk(std::uint32_t user = kWriter) {
    writing_.take(user, [latches = latches_] {
      latches->asleep.count_down();
      latches->woken.wait();
      return false;
    });
    latches_->asleep.wait();
  }
  SleepingDisk(const SleepingDisk&) = delete;
  SleepingDisk& operator=(const SleepingDisk&) = delete;
  ~SleepingDisk() {
    if (!is_awake_) wake();
  }

  Disposal& writing() { return writing_; }
  // Returns when all that waits has been written.
  void wake() {
    is_awake_ = true;
    latches_->woken.count_down();
    while (writing_.count() != 0) std::this_thread::yield();
  }

 private:
  // The thread's too, which looks at them after whoever waits has gone on.
  struct Latches {
    std::latch asleep{1}, woken{1};
  };
  std::shared_ptr<Latches> latches_ = std::make_shared<Latches>();
  bool is_awake_ = false;
  Disposal writing_;
};

}  // namespace tern::daemon
