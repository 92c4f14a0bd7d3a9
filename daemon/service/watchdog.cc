#include "daemon/service/watchdog.h"

#include <algorithm>

namespace tern::daemon {
namespace {

// Asked so often within a timeout at least: an answer that took half of it is still in time.
constexpr std::uint64_t kRoundsPerTimeout = 4;
// A thread that is awake asks when so much of a round has passed: it need not wake at its end.
constexpr std::uint64_t kEarlyQuarters = 3;
// How often within a round the answers are looked at, if nothing else wakes the thread.
constexpr std::uint64_t kLooksPerRound = 4;

}  // namespace

Watchdog::Watchdog(std::uint64_t timeout_ns, std::vector<SignOfLife*> signs,
                   std::function<void(std::size_t)> wake)
    : timeout_ns_(timeout_ns), signs_(std::move(signs)), wake_(std::move(wake)) {}

bool Watchdog::tick(std::uint64_t now_ns) {
  const std::uint64_t round_ns = timeout_ns_ / kRoundsPerTimeout;
  if (!asking_) {
    if (now_ns < next_ns_ && now_ns < asked_ns_ + round_ns / 4 * kEarlyQuarters) return false;
    for (SignOfLife* sign : signs_) sign->ask();
    for (std::size_t i = 0; i < signs_.size(); ++i) wake_(i);
    asking_ = true;
    asked_ns_ = now_ns;
  }
  if (!std::all_of(signs_.begin(), signs_.end(), [](auto* sign) { return sign->answered(); })) {
    if (now_ns >= next_ns_) next_ns_ = now_ns + round_ns / kLooksPerRound;
    return false;
  }
  asking_ = false;
  next_ns_ = asked_ns_ + round_ns;
  return true;
}

std::vector<std::size_t> Watchdog::silent(std::uint64_t now_ns) const {
  std::vector<std::size_t> lanes;
  if (!asking_ || now_ns - asked_ns_ <= timeout_ns_ / 2) return lanes;
  for (std::size_t i = 0; i < signs_.size(); ++i) {
    if (!signs_[i]->answered()) lanes.push_back(i);
  }
  return lanes;
}

}  // namespace tern::daemon
