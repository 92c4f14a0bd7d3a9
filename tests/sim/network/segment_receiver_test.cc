#include "segment_receiver.h"

#include <gtest/gtest.h>

namespace tern::sim {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};

TEST(SegmentReceiver, AcknowledgesEverySecondSegmentAtOnce) {
  SegmentReceiver receiver;
  EXPECT_EQ(receiver.ack_due_ns(), kNever);
  receiver.take(0, 100, 7);
  EXPECT_EQ(receiver.ack_due_ns(), 7 + SegmentReceiver::kAckDelayNs);
  receiver.take(100, 200, 8);
  EXPECT_EQ(receiver.ack_due_ns(), 8u);
  receiver.note_acknowledged(true);
  EXPECT_EQ(receiver.ack_due_ns(), kNever);
}

TEST(SegmentReceiver, BytesThatLeaveAcknowledgeToo) {
  SegmentReceiver receiver;
  receiver.take(0, 100, 7);
  receiver.note_acknowledged(false);
  EXPECT_EQ(receiver.ack_due_ns(), kNever);
}

TEST(SegmentReceiver, SaysAtOnceThatSomethingIsMissing) {
  SegmentReceiver receiver;
  receiver.take(100, 200, 7);
  EXPECT_EQ(receiver.arrived(), 0u);
  EXPECT_EQ(receiver.ack_due_ns(), 7u);
  receiver.note_acknowledged(false);
  EXPECT_EQ(receiver.ack_due_ns(), 7u) << "bytes say nothing of what is missing";
  receiver.note_acknowledged(true);
  receiver.take(0, 100, 9);
  EXPECT_EQ(receiver.arrived(), 200u);
  EXPECT_EQ(receiver.ack_due_ns(), 9u);
}

TEST(SegmentReceiver, JoinsWhatCameOutOfOrder) {
  SegmentReceiver receiver;
  receiver.take(300, 400, 1);
  receiver.take(100, 200, 1);
  receiver.take(150, 300, 1);
  receiver.take(500, 600, 1);
  EXPECT_EQ(receiver.arrived(), 0u);
  receiver.take(0, 100, 1);
  EXPECT_EQ(receiver.arrived(), 400u);
  receiver.take(50, 450, 1);
  EXPECT_EQ(receiver.arrived(), 450u);
  receiver.take(450, 500, 1);
  EXPECT_EQ(receiver.arrived(), 600u);
}

}  // namespace
}  // namespace tern::sim
