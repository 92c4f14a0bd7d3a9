#pragma once

// The lane's end of the ring of events: what it tells the conductor, and whether that is to be
// woken for it. Events must not be lost, so with less room than a round needs the lane does nothing
// new until the conductor has read. A round in which thousands of ops or links fail needs more than
// that: what the ring does not hold waits here, which is the only time that memory is asked for.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/bump.h"
#include "daemon/lane/lane_exchange.h"
#include "daemon/lane/lane_settings.h"

namespace tern::daemon {

class EventReports {
 public:
  explicit EventReports(std::uint32_t lane) : lane_(static_cast<std::uint16_t>(lane)) {}

  EventRing& ring() noexcept { return *ring_; }
  // Before each round: whether there is room for what one usually reports.
  bool has_room() {
    std::size_t moved = 0;
    while (moved < waiting_.size() && ring_->push(waiting_[moved])) ++moved;
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(moved));
    urgent_ = urgent_ || moved > 0;
    return waiting_.empty() && ring_->write_available() >= kReserve;
  }
  // Whether the conductor is to be woken for what has been reported since the last call.
  bool take_urgent() noexcept { return std::exchange(urgent_, false); }

  template <typename What>
  void report(const What& what) {
    push(what);
    urgent_ = true;
  }
  // False: left out while the conductor is behind. The counters have it.
  template <typename What>
  bool report_for_log(const What& what) {
    if (!has_room_for_more()) return false;
    report(what);
    return true;
  }
  // Dropped, and counted, while the conductor is behind.
  void record(const event::OpEnded& ended, LaneCounters& counters) {
    if (!has_room_for_more()) {
      bump(counters.dropped_records, std::uint64_t{1});
      return;
    }
    push(ended);
    urgent_ = is_urgent(ended) || urgent_;
  }

 private:
  // A round reports a few events for each op that it ends.
  static constexpr std::size_t kReserve = 2048;
  static constexpr std::size_t kRecordWake = 3072;
  // To wake another thread costs more than a small op: the conductor looks by itself while ops are
  // tuned (Tuning::next_deadline_ns), is woken if it may have stopped, and for ops that took
  // another time than usual.
  static constexpr std::uint64_t kTunerWakeNs = 1'000'000'000;
  static constexpr std::uint64_t kSurpriseNs = 2'000'000;

  // What may be left out never takes the room without which the lane would stand still.
  bool has_room_for_more() const noexcept {
    return waiting_.empty() && ring_->write_available() > kReserve;
  }
  template <typename What>
  void push(const What& what) {
    const Event event{lane_, what};
    if (!waiting_.empty() || !ring_->push(event)) waiting_.push_back(event);
  }
  // Records of ops that went well can wait for the conductor's next round.
  bool is_urgent(const event::OpEnded& ended) noexcept {
    if (ended.code != Errc::ok || ring_->write_available() < kRecordWake) return true;
    if (!ended.record.tuned) return false;
    const std::uint64_t wait = ended.record.tuned->surprising ? kSurpriseNs : kTunerWakeNs;
    if (ended.record.ended_ns < tuner_woken_ns_ + wait) return false;
    tuner_woken_ns_ = ended.record.ended_ns;
    return true;
  }

  std::uint16_t lane_;
  bool urgent_ = false;
  std::uint64_t tuner_woken_ns_ = 0;
  // On the heap: a few hundred kilobytes.
  std::unique_ptr<EventRing> ring_ = make_resident_ring<EventRing>();
  std::vector<Event> waiting_;  // the oldest first; all that is in the ring is older
};

}  // namespace tern::daemon
