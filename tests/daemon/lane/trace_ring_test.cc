#include "daemon/lane/trace_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tern::daemon {
namespace {

TraceEvent event_of(std::uint64_t number) {
  TraceEvent event;
  event.kind = TraceKind::encode;
  event.begin_ns = event.end_ns = event.group = event.tensor = event.sequence = number;
  event.bytes = event.bytes_raw = number;
  return event;
}

TEST(TraceRing, KeepsWhatWasRecordedSinceTheStart) {
  TraceRing ring;
  EXPECT_FALSE(ring.on());
  ring.record(event_of(1));  // of a time before
  ring.start();
  EXPECT_TRUE(ring.on());
  for (std::uint64_t i = 10; i < 15; ++i) ring.record(event_of(i));
  ring.stop();
  EXPECT_FALSE(ring.on());
  const auto first = ring.read(0, 3);
  ASSERT_EQ(first.events.size(), 3u);
  EXPECT_EQ(first.events[0].sequence, 10u);
  EXPECT_EQ(first.events[0].kind, TraceKind::encode);
  EXPECT_TRUE(first.more);
  const auto second = ring.read(first.next, 3);
  ASSERT_EQ(second.events.size(), 2u);
  EXPECT_EQ(second.events[1].sequence, 14u);
  EXPECT_FALSE(second.more);
  EXPECT_EQ(second.dropped, 0u);
  // Twice the same: nothing is lost by reading.
  EXPECT_EQ(ring.read(0, 100).events.size(), 5u);
  ring.start();
  EXPECT_TRUE(ring.read(0, 100).events.empty());
}

TEST(TraceRing, OverwritesTheOldestAndSaysHowMany) {
  TraceRing ring;
  ring.start();
  constexpr std::uint64_t kWritten = TraceRing::kEvents + 1000;
  for (std::uint64_t i = 0; i < kWritten; ++i) ring.record(event_of(i));
  std::uint64_t from = 0, read = 0, dropped = 0, expected = 0;
  for (bool more = true; more;) {
    const auto page = ring.read(from, 4096);
    dropped += page.dropped;
    if (from == 0) expected = page.dropped;
    for (const auto& event : page.events) ASSERT_EQ(event.sequence, expected++);
    read += page.events.size();
    from = page.next;
    more = page.more;
  }
  EXPECT_EQ(read + dropped, kWritten);
  EXPECT_GE(read, TraceRing::kEvents - 1);
  EXPECT_EQ(expected, kWritten);
}

TEST(TraceRing, IsReadWholeOrNotAtAllWhileItIsWritten) {
  TraceRing ring;
  ring.start();
  std::atomic<bool> done{false};
  std::thread lane([&] {
    for (std::uint64_t i = 0; i < 6 * TraceRing::kEvents; ++i) ring.record(event_of(i));
    done = true;
  });
  std::uint64_t from = 0, accounted = 0;
  for (bool last = false; !last;) {
    last = done;
    for (bool more = true; more;) {
      const auto page = ring.read(from, 1000);
      accounted += page.dropped + page.events.size();
      for (const auto& event : page.events) {
        ASSERT_EQ(event.begin_ns, event.sequence);
        ASSERT_EQ(event.bytes, event.sequence);
        ASSERT_EQ(event.group, event.sequence);
      }
      from = page.next;
      more = page.more;
    }
  }
  lane.join();
  EXPECT_EQ(accounted, 6 * TraceRing::kEvents);
}

}  // namespace
}  // namespace tern::daemon
