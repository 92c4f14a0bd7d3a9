#include "client_lib/submission_lanes.h"

#include <utility>

#include "base/check.h"
#include "shm/wakeup.h"

namespace tern::client_lib {

SubmissionLanes::SubmissionLanes(const shm::Segment& segment, std::vector<Fd> eventfds) {
  TERN_CHECK(eventfds.size() == segment.lane_count());
  for (std::uint32_t lane = 0; lane < segment.lane_count(); ++lane) {
    lanes_.push_back({shm::RingProducer<shm::SubmitEntry>(segment.submit_ring(lane)),
                      &segment.lane_rings(lane), std::move(eventfds[lane])});
  }
}

template <typename Use>
void SubmissionLanes::for_each(std::uint32_t lanes, Use use) {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    if ((lanes >> lane & 1u) != 0) use(lanes_[lane]);
  }
}

bool SubmissionLanes::have_room(std::uint32_t lanes, std::uint64_t entries) noexcept {
  bool room = true;
  for_each(lanes, [&](OneLane& lane) { room = room && lane.ring.has_room(entries); });
  return room;
}

void SubmissionLanes::write(std::uint32_t lanes, const shm::SubmitEntry& entry) noexcept {
  for_each(lanes, [&entry](OneLane& lane) { lane.ring.write(entry); });
}

void SubmissionLanes::publish(std::uint32_t lanes) noexcept {
  for_each(lanes, [](OneLane& lane) { lane.ring.publish(); });
}

void SubmissionLanes::wake(std::uint32_t lanes) noexcept {
  for_each(lanes, [](OneLane& lane) { shm::wake_lane(*lane.rings, lane.eventfd.get()); });
}

void SubmissionLanes::close_fds() noexcept {
  for (OneLane& lane : lanes_) lane.eventfd.reset();
}

}  // namespace tern::client_lib
