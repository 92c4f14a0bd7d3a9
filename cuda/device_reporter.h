#pragma once

#include <cstdint>

#include "base/clock.h"
#include "cuda/device_use.h"

// Tells the daemon what a session does on its device, so that an operator can see it. Once a second
// is enough for people, and costs an operation nothing.
namespace tern::cuda {

// Thread: one at a time.
class DeviceReporter {
 public:
  static constexpr std::uint64_t kEveryNs = 1'000'000'000;

  // `device`: as the driver counts them. Requires: the rest outlives it.
  DeviceReporter(tern_client* client, int device, const DeviceUse& use, const Clock& clock)
      : client_(client), device_(static_cast<std::uint32_t>(device)), use_(use), clock_(clock) {}

  // Until there is something to tell and time for it; -1: there is nothing.
  int due_in_ms() const;
  void tell_if_due();
  // What has not been told, at the end.
  void tell_rest();

 private:
  bool has_news() const { return is_heard_ && use_.changes() != told_; }

  tern_client* client_;
  std::uint32_t device_;
  const DeviceUse& use_;
  const Clock& clock_;
  std::uint64_t told_ = 0;    // DeviceUse::changes()
  std::uint64_t due_ns_ = 0;  // when the next report may be
  bool is_heard_ = true;      // false: by a daemon of an older version, or none
};

}  // namespace tern::cuda
