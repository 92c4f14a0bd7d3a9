#include "client_lib/submission_lanes.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shm/wakeup.h"

namespace tern::client_lib {
namespace {

class SubmissionLanesTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kLanes = 3;

  SubmissionLanesTest() : segment(*shm::Segment::create(kLanes, 4096, 0)) {
    std::vector<Fd> fds;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      fds.emplace_back(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
      eventfds.push_back(fds.back().get());
      rings.emplace_back(segment.submit_ring(lane));
    }
    lanes.emplace(segment, std::move(fds));
  }

  bool has_entry(std::uint32_t lane, std::uint64_t ticket) {
    shm::SubmitEntry entry;
    return rings[lane].try_pop(entry) == shm::RingResult::ok && entry.ticket == ticket;
  }

  shm::Segment segment;
  std::vector<int> eventfds;
  std::vector<shm::RingConsumer<shm::SubmitEntry>> rings;
  std::optional<SubmissionLanes> lanes;
};

TEST_F(SubmissionLanesTest, AnEntryGoesToTheLanesOfItsSet) {
  shm::SubmitEntry entry{};
  entry.ticket = 9;
  lanes->write(0b101, entry);
  EXPECT_FALSE(has_entry(0, 9)) << "not before it is published";
  lanes->publish(0b101);
  EXPECT_TRUE(has_entry(0, 9));
  EXPECT_FALSE(has_entry(1, 9));
  EXPECT_TRUE(has_entry(2, 9));
}

TEST_F(SubmissionLanesTest, OneFullRingOfTheSetIsNoRoom) {
  for (std::uint32_t i = 0; i < shm::kRingEntries; ++i) {
    ASSERT_TRUE(lanes->have_room(0b010));
    EXPECT_EQ(lanes->have_room(0b010, 2), i + 1 < shm::kRingEntries);
    lanes->write(0b010, {});
  }
  lanes->publish(0b010);
  EXPECT_FALSE(lanes->have_room(0b010));
  EXPECT_FALSE(lanes->have_room(0b111));
  EXPECT_TRUE(lanes->have_room(0b101));
  EXPECT_TRUE(has_entry(1, 0));
  EXPECT_TRUE(lanes->have_room(0b111));
}

TEST_F(SubmissionLanesTest, OnlySleepingLanesOfTheSetAreWoken) {
  shm::announce_sleep(segment.lane_rings(1));
  shm::announce_sleep(segment.lane_rings(2));
  lanes->wake(0b011);
  EXPECT_FALSE(shm::drain_eventfd(eventfds[0])) << "it does not sleep";
  EXPECT_TRUE(shm::drain_eventfd(eventfds[1]));
  EXPECT_FALSE(shm::drain_eventfd(eventfds[2])) << "it is not of the set";
}

}  // namespace
}  // namespace tern::client_lib
