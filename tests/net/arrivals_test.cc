#include "net/arrivals.h"

#include <gtest/gtest.h>

namespace tern::net {
namespace arrivals_test {
namespace {

constexpr std::uint64_t kNow = 1'000'000'000;

class ArrivalsTest : public ::testing::Test {
 protected:
  LinkSettings settings;
  Arrivals arrivals{settings};
};

TEST_F(ArrivalsTest, ExpectsFramesFromOneOn) {
  EXPECT_EQ(arrivals.next(), 1u);
  EXPECT_FALSE(arrivals.owes_ack());
  arrivals.add(10);
  EXPECT_EQ(arrivals.next(), 2u);
  EXPECT_EQ(arrivals.newest(), 1u);
  EXPECT_TRUE(arrivals.owes_ack());
}

TEST_F(ArrivalsTest, AnAckIsDueAfterItsDelayFromWhenItWasFirstAskedFor) {
  arrivals.add(10);
  EXPECT_FALSE(arrivals.is_ack_due(kNow));
  EXPECT_FALSE(arrivals.is_ack_due(kNow + settings.ack_delay_ns - 1));
  EXPECT_TRUE(arrivals.is_ack_due(kNow + settings.ack_delay_ns));
  arrivals.note_acknowledged();
  EXPECT_FALSE(arrivals.is_ack_due(kNow + settings.ack_delay_ns));
}

TEST_F(ArrivalsTest, AnAckIsDueAtOnceAfterManyFramesOrBytes) {
  for (std::uint32_t i = 1; i < settings.ack_frames; ++i) arrivals.add(0);
  EXPECT_FALSE(arrivals.is_ack_due(kNow));
  arrivals.add(0);
  EXPECT_TRUE(arrivals.is_ack_due(kNow));
  arrivals.note_acknowledged();
  arrivals.add(static_cast<std::uint32_t>(settings.ack_bytes) - 1);
  EXPECT_FALSE(arrivals.is_ack_due(kNow));
  arrivals.add(1);
  EXPECT_TRUE(arrivals.is_ack_due(kNow));
}

TEST_F(ArrivalsTest, AnAckThatThePeerWaitsForIsDueAtOnce) {
  arrivals.note_awaited();  // nothing has arrived: nothing is owed
  arrivals.add(10);
  EXPECT_FALSE(arrivals.is_ack_due(kNow));
  arrivals.note_awaited();
  EXPECT_EQ(arrivals.next_send_ns(kNow, kNow + settings.ack_delay_ns), kNow);
  EXPECT_TRUE(arrivals.is_ack_due(kNow));
  arrivals.note_acknowledged();
  arrivals.add(10);
  EXPECT_FALSE(arrivals.is_ack_due(kNow)) << "of what has arrived since, nobody waits to be told";
}

TEST_F(ArrivalsTest, AReportIsDueAlsoWhereOtherFramesAcknowledge) {
  arrivals.restart();
  std::uint32_t frames = 0;
  while (!arrivals.is_ack_due(kNow) && frames < 1000) {
    arrivals.add(1);
    arrivals.note_acknowledged();
    ++frames;
  }
  EXPECT_EQ(frames, 8 * settings.ack_frames);
  arrivals.note_reported();
  EXPECT_FALSE(arrivals.is_ack_due(kNow));
}

TEST_F(ArrivalsTest, NothingIsDueWhileItIsPutOff) {
  for (std::uint32_t i = 0; i < settings.ack_frames; ++i) arrivals.add(0);
  arrivals.put_off(kNow);
  EXPECT_FALSE(arrivals.is_ack_due(kNow));
  EXPECT_EQ(arrivals.next_send_ns(kNow, kNow), kNow + settings.ack_delay_ns);
  EXPECT_TRUE(arrivals.is_ack_due(kNow + settings.ack_delay_ns));
  arrivals.put_off(kNow);
  arrivals.restart();
  EXPECT_FALSE(arrivals.is_put_off(kNow)) << "that was the old connection's";
}

TEST_F(ArrivalsTest, TheNextFrameIsDueWhenAnAckIsAndAtLatestAsAsked) {
  const std::uint64_t latest = kNow + settings.heartbeat_ns;
  EXPECT_EQ(arrivals.next_send_ns(kNow, latest), latest);
  arrivals.add(10);
  EXPECT_EQ(arrivals.next_send_ns(kNow, latest), kNow + settings.ack_delay_ns);
  EXPECT_FALSE(arrivals.is_ack_due(kNow + 5));
  EXPECT_EQ(arrivals.next_send_ns(kNow, latest), kNow + 5 + settings.ack_delay_ns);
}

TEST_F(ArrivalsTest, ReportsWhatHasArrivedInTotal) {
  arrivals.add(10);
  arrivals.note_acknowledged();
  arrivals.add(20);
  arrivals.add_decode_ns(5);
  arrivals.add_decode_ns(6);
  arrivals.set_delivered(7);
  const wire::AckBody body = arrivals.report(kNow);
  EXPECT_EQ(body.bytes, 30u);
  EXPECT_EQ(body.receiver_ns, kNow);
  EXPECT_EQ(body.decode_ns, 11u);
  EXPECT_EQ(body.delivered, 7u);
}

}  // namespace
}  // namespace arrivals_test
}  // namespace tern::net
