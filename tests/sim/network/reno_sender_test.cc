#include "reno_sender.h"

#include <gtest/gtest.h>

#include <vector>

namespace tern::sim {
namespace {

constexpr std::uint64_t kSegment = RenoSender::kSegmentBytes;
constexpr std::uint64_t kMillisecond = 1'000'000;

class RenoSenderTest : public testing::Test {
 protected:
  // All that may leave now.
  std::vector<RenoSender::Segment> sent() {
    std::vector<RenoSender::Segment> all;
    for (RenoSender::Segment segment; sender.next(now_ns, segment);) all.push_back(segment);
    return all;
  }
  void ack(std::uint64_t segments) {
    now_ns += kMillisecond;
    sender.on_ack(segments * kSegment, true, now_ns);
  }
  void ack_again(int times) {
    for (int i = 0; i < times; ++i) sender.on_ack(sender.acked(), true, now_ns);
  }

  RenoSender sender;
  std::uint64_t now_ns = 1;
};

TEST_F(RenoSenderTest, OpeningTheConnectionIsARoundTripToo) {
  sender.on_open(kMillisecond / 2);
  sender.write(kSegment, false, now_ns);
  ASSERT_EQ(sent().size(), 1u);
  ack(1);
  EXPECT_EQ(sender.shortest_round_trip_ns(), kMillisecond / 2);
}

TEST_F(RenoSenderTest, BeginsWithTenSegmentsAndDoublesThemInARoundTrip) {
  sender.write(100 * kSegment, false, now_ns);
  EXPECT_EQ(sent().size(), 10u);
  ack(10);
  EXPECT_EQ(sent().size(), 20u);
  EXPECT_EQ(sender.held(), 90 * kSegment);
}

TEST_F(RenoSenderTest, AWindowThatDoesNotBindDoesNotGrow) {
  for (std::uint64_t i = 1; i <= 50; ++i) {
    sender.write(kSegment, false, now_ns);
    EXPECT_EQ(sent().size(), 1u);
    ack(i);
  }
  EXPECT_EQ(sender.window(), RenoSender::kInitialWindow);
}

TEST_F(RenoSenderTest, ARecordEndsItsSegment) {
  sender.write(kSegment + 10, true, now_ns);
  sender.write(20, true, now_ns);
  const auto segments = sent();
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[1].bytes, 10u);
  EXPECT_EQ(segments[2].bytes, 20u);
}

TEST_F(RenoSenderTest, TheThirdDuplicateSendsTheFirstAgainAndHalvesTheWindow) {
  sender.write(100 * kSegment, false, now_ns);
  sent();
  ack(10);
  sent();  // 10 to 29; 10 is lost
  ack_again(2);
  EXPECT_TRUE(sent().empty());
  ack_again(1);
  const auto again = sent();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_TRUE(again[0].again);
  EXPECT_EQ(again[0].begin, 10 * kSegment);
  ack_again(17);
  ack(30);
  EXPECT_LE(sender.window(), 10 * kSegment);
  EXPECT_EQ(sender.fast_retransmits(), 1u);
  EXPECT_EQ(sender.timeouts(), 0u);
}

TEST_F(RenoSenderTest, APartialAcknowledgementSendsTheNextHoleAgain) {
  sender.write(100 * kSegment, false, now_ns);
  sent();
  ack(10);
  sent();  // 10 to 29; 10 and 20 are lost
  ack_again(3);
  sent();
  ack(20);
  const auto again = sent();
  ASSERT_FALSE(again.empty());
  EXPECT_TRUE(again[0].again);
  EXPECT_EQ(again[0].begin, 20 * kSegment);
  EXPECT_EQ(sender.fast_retransmits(), 1u);
}

TEST_F(RenoSenderTest, WithoutAnswerItSendsOneSegmentAfter200MsAndThenAfter400) {
  sender.write(5 * kSegment, false, now_ns);
  sent();
  for (std::uint64_t timeout = RenoSender::kLeastTimeoutNs;
       timeout <= 2 * RenoSender::kLeastTimeoutNs; timeout *= 2) {
    EXPECT_EQ(sender.deadline_ns(), now_ns + timeout);
    now_ns = sender.deadline_ns() - 1;
    sender.on_time(now_ns);
    EXPECT_TRUE(sent().empty());
    sender.on_time(++now_ns);
    const auto again = sent();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_TRUE(again[0].again);
  }
  EXPECT_EQ(sender.timeouts(), 2u);
  // What had arrived beyond it is not sent again.
  ack(5);
  EXPECT_EQ(sender.held(), 0u);
  EXPECT_EQ(sender.deadline_ns(), ~std::uint64_t{0});
}

TEST_F(RenoSenderTest, AfterAPauseTheWindowIsSmall) {
  sender.write(30 * kSegment, false, now_ns);
  sent();
  ack(10);
  sent();
  ack(30);
  EXPECT_GT(sender.window(), RenoSender::kInitialWindow);
  now_ns += RenoSender::kLeastTimeoutNs + kMillisecond;
  sender.write(30 * kSegment, false, now_ns);
  EXPECT_EQ(sent().size(), 10u);
}

TEST_F(RenoSenderTest, KnowsHowLongItWasBusyAndTheShortestRoundTrip) {
  sender.write(kSegment, false, now_ns);
  sent();
  ack(1);
  now_ns += 5 * kMillisecond;
  EXPECT_EQ(sender.busy_ns(now_ns), kMillisecond);
  EXPECT_EQ(sender.shortest_round_trip_ns(), kMillisecond);
}

}  // namespace
}  // namespace tern::sim
