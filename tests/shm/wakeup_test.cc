#include "shm/wakeup.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "shm/segment.h"

namespace tern::shm {
namespace {

bool readable(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, 0) == 1;
}

void wait_readable(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  while (::poll(&waiting, 1, -1) != 1) {
  }
}

TEST(Wakeup, AnAwakeLaneCostsNoSystemCall) {
  LaneRings rings{};
  Result<Fd> eventfd = make_eventfd();
  ASSERT_TRUE(eventfd);
  EXPECT_FALSE(wake_lane(rings, eventfd->get()));
  EXPECT_FALSE(readable(eventfd->get()));
  announce_sleep(rings);
  EXPECT_TRUE(wake_lane(rings, eventfd->get()));
  EXPECT_TRUE(readable(eventfd->get()));
  end_sleep(rings);
  EXPECT_FALSE(wake_lane(rings, eventfd->get()));
}

TEST(Wakeup, DrainingDoesNotBlockOnAnEventfdMadeBlocking) {
  Result<Fd> eventfd = make_eventfd();
  ASSERT_TRUE(eventfd);
  ASSERT_EQ(::fcntl(eventfd->get(), F_SETFL, 0), 0);
  EXPECT_FALSE(drain_eventfd(eventfd->get()));
  LaneRings rings{};
  announce_sleep(rings);
  wake_lane(rings, eventfd->get());
  EXPECT_TRUE(drain_eventfd(eventfd->get()));
  EXPECT_FALSE(readable(eventfd->get()));
}

TEST(Wakeup, TheByteIsSentOncePerArming) {
  SegmentHeader header{};
  auto pair = make_notify_pair();
  ASSERT_TRUE(pair);
  auto& [daemon_end, client_end] = *pair;
  ring_doorbell(header, daemon_end.get());
  EXPECT_FALSE(readable(client_end.get()));
  arm_notify(header);
  ring_doorbell(header, daemon_end.get());
  ring_doorbell(header, daemon_end.get());
  EXPECT_FALSE(notify_armed(header));
  EXPECT_TRUE(readable(client_end.get()));
  drain_notify(client_end.get());
  EXPECT_FALSE(readable(client_end.get()));
  EXPECT_EQ(read_doorbell(header), 3u);
}

TEST(Wakeup, AClientThatNeverReadsItsByteDoesNotBlockTheDaemon) {
  SegmentHeader header{};
  auto pair = make_notify_pair();
  ASSERT_TRUE(pair);
  ASSERT_EQ(::fcntl(pair->first.get(), F_SETFL, 0), 0);
  for (int i = 0; i < 20000; ++i) {
    arm_notify(header);
    ring_doorbell(header, pair->first.get());
  }
  pair->second.reset();
  arm_notify(header);
  ring_doorbell(header, pair->first.get());
}

TEST(Wakeup, ARungDoorbellEndsTheSleepAtOnce) {
  SegmentHeader header{};
  const std::uint32_t seen = read_doorbell(header);
  ring_doorbell(header, -1);
  sleep_on_doorbell(header, seen, 3'600'000'000'000u);
  EXPECT_EQ(header.sleepers, 0u);
}

// Who has read the doorbell and is about to sleep must not sleep for the whole of its time.
TEST(Wakeup, WakingTheOthersReachesWhoIsAboutToSleep) {
  SegmentHeader header{};
  const std::uint32_t seen = read_doorbell(header);
  wake_sleepers(header);
  EXPECT_NE(read_doorbell(header), seen);
  sleep_on_doorbell(header, seen, 3'600'000'000'000);  // returns at once
}

// A ping-pong in which each side sleeps for as long as it takes: a lost wake-up would hang it.
TEST(Wakeup, NoWakeUpIsLost) {
  constexpr std::uint64_t kRounds = 20'000;
  Result<Segment> made = Segment::create(1, 4096, 0);
  ASSERT_TRUE(made) << made.error().text;
  Segment& segment = *made;
  Result<Fd> eventfd = make_eventfd();
  ASSERT_TRUE(eventfd);
  std::thread lane([&] {
    RingConsumer<SubmitEntry> submitted(segment.submit_ring(0));
    RingProducer<CompletionEntry> completed(segment.completion_ring(0));
    LaneRings& rings = segment.lane_rings(0);
    for (std::uint64_t done = 0; done < kRounds;) {
      SubmitEntry entry{};
      if (submitted.try_pop(entry) == RingResult::ok) {
        CompletionEntry completion{};
        completion.ticket = entry.ticket;
        ASSERT_EQ(completed.try_push(completion), RingResult::ok);
        ring_doorbell(segment.header(), -1);
        ++done;
        continue;
      }
      announce_sleep(rings);
      if (submitted.empty()) {
        wait_readable(eventfd->get());
        drain_eventfd(eventfd->get());
      }
      end_sleep(rings);
    }
  });
  RingProducer<SubmitEntry> submit(segment.submit_ring(0));
  RingConsumer<CompletionEntry> completions(segment.completion_ring(0));
  for (std::uint64_t i = 1; i <= kRounds; ++i) {
    SubmitEntry entry{};
    entry.ticket = i;
    ASSERT_EQ(submit.try_push(entry), RingResult::ok);
    wake_lane(segment.lane_rings(0), eventfd->get());
    for (;;) {
      const std::uint32_t seen = read_doorbell(segment.header());
      CompletionEntry completion{};
      if (completions.try_pop(completion) == RingResult::ok) {
        ASSERT_EQ(completion.ticket, i);
        break;
      }
      sleep_on_doorbell(segment.header(), seen, 3'600'000'000'000u);
    }
  }
  lane.join();
}

}  // namespace
}  // namespace tern::shm
