#pragma once

#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "shm/segment.h"

namespace tern::client_lib {

// The rings to the daemon's lanes, and how the lanes are woken. Sets of lanes are bits. Guarded by:
// the client's mutex, but for wake().
class SubmissionLanes {
 public:
  // REQUIRES: an eventfd for each lane; the segment stays mapped.
  SubmissionLanes(const shm::Segment& segment, std::vector<Fd> eventfds);

  // In each of their rings, for so many entries.
  bool have_room(std::uint32_t lanes, std::uint64_t entries = 1) noexcept;
  // The lanes see what was written when it is published, all of it at once. REQUIRES: room.
  void write(std::uint32_t lanes, const shm::SubmitEntry& entry) noexcept;
  void publish(std::uint32_t lanes) noexcept;
  // After publish().
  void wake(std::uint32_t lanes) noexcept;
  // In a forked child: closes its copies of the descriptors and nothing else.
  void close_fds() noexcept;

 private:
  struct OneLane {
    shm::RingProducer<shm::SubmitEntry> ring;
    shm::LaneRings* rings;
    Fd eventfd;
  };
  template <typename Use>
  void for_each(std::uint32_t lanes, Use use);

  std::vector<OneLane> lanes_;
};

}  // namespace tern::client_lib
