#include "daemon/lane/link_rates.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/daemon/lane/lane_rig.h"

namespace tern::daemon::link_rates_test {
namespace {

using lane_test::kSecond;
using lane_test::TwoLanes;

// A group of three nodes, of which the last two are links to the same lane.
class LinkRatesTest : public ::testing::Test {
 protected:
  LinkRatesTest() : peers{nullptr, &lanes.open(1), &lanes.open(2)} {}

  // The end of an op that has sent so many bytes to each node in a second.
  void look(std::uint64_t bytes_to_each, bool sends_before_start = false) {
    LaneOp op;
    op.bytes_raw = op.bytes_sent = 2 * bytes_to_each;
    op.started_ns = now_ns;
    now_ns += kSecond;
    rates.look(op, sends_before_start, peers, now_ns);
  }
  void carrier_says(std::uint32_t node, double bytes_per_s, bool limited = false) {
    lanes.transport.carriers[node - 1].rate = {bytes_per_s, limited, 70'000};
  }

  TwoLanes lanes;
  std::vector<LanePeer*> peers;
  std::uint64_t now_ns = 100 * kSecond;
  LinkRates rates{3};
};

TEST_F(LinkRatesTest, ASmallOpShowsNothing) {
  carrier_says(1, 1e6);
  look(20'000);
  EXPECT_EQ(rates.of(1).bytes_per_s, 0.0);
  EXPECT_TRUE(rates.of(1).limited);
}

// What was sent before the op began says nothing of the time after it.
TEST_F(LinkRatesTest, AnOpThatSendsBeforeItBeginsShowsNoRateOfItsOwn) {
  carrier_says(1, 1e6, true);
  look(8'000'000, true);
  EXPECT_EQ(rates.of(1).bytes_per_s, 1e6);
  look(8'000'000);
  EXPECT_EQ(rates.of(1).bytes_per_s, 8e6);
}

TEST_F(LinkRatesTest, AFullLinkHasTheRateOfItsCarrier) {
  carrier_says(1, 1e6);
  look(900'000);
  EXPECT_EQ(rates.of(1).bytes_per_s, 1e6);
  EXPECT_FALSE(rates.of(1).limited);
  EXPECT_EQ(rates.of(1).round_trip_ns, 70'000.0);
  carrier_says(1, 1e9);
  look(900'000);
  EXPECT_TRUE(rates.of(1).limited) << "it was hardly used";
  carrier_says(1, 1e6, true);
  look(900'000);
  EXPECT_TRUE(rates.of(1).limited) << "the carrier itself says so";
}

TEST_F(LinkRatesTest, WhatElseWentOverTheLinkCounts) {
  carrier_says(1, 1e6);
  look(300'000);
  EXPECT_TRUE(rates.of(1).limited);
  TwoLanes::send(*peers[1]->link, 900'000);
  look(300'000);
  EXPECT_FALSE(rates.of(1).limited);
  look(300'000);
  EXPECT_TRUE(rates.of(1).limited) << "since the last look nothing did";
}

TEST_F(LinkRatesTest, ARateThatTheOpHasExceededIsNotBelieved) {
  carrier_says(1, 1e6);
  look(3'000'000);
  EXPECT_TRUE(rates.of(1).limited);
  EXPECT_DOUBLE_EQ(rates.of(1).bytes_per_s, 3e6);
}

TEST_F(LinkRatesTest, AllPeersHearOfTheSlowestFullLink) {
  carrier_says(1, 1e6);
  carrier_says(2, 5e5, true);  // slower, but not full
  look(800'000);
  for (std::uint32_t node = 1; node <= 2; ++node) {
    net::Link& far = lanes.far_end(*peers[node]);
    TwoLanes::send(far, 100);
    lanes.pump();
    EXPECT_EQ(far.stats().peer_delivers, 1'000'000u) << node;
  }
}

TEST_F(LinkRatesTest, APeerSaysHowFastItReachesThisNode) {
  lanes.far_end(*peers[2]).report_delivered(7'000'000);
  TwoLanes::send(*peers[2]->link, 100);
  lanes.pump();
  look(900'000);
  EXPECT_EQ(rates.of(2).inbound, 7e6);
  EXPECT_EQ(rates.of(1).inbound, 0.0);
}

// ---- How fast the other side adds

class DecodeStrainTest : public LinkRatesTest {
 protected:
  // Blocks of so many bytes were added here and there, each in so long.
  void add(std::uint64_t bytes, std::uint64_t here_ns, std::uint64_t there_ns) {
    peers[1]->work.sent_bytes += bytes;
    peers[1]->work.added_bytes += bytes;
    peers[1]->work.added_ns += here_ns;
    lanes.far_end(*peers[1]).add_decode_ns(there_ns);
    TwoLanes::send(*peers[1]->link, 100);
    lanes.pump();
    look(900'000);
  }
};

TEST_F(DecodeStrainTest, TendsToWhatAPeerTakesByWhatIsTakenHereWithinBounds) {
  add(2 << 20, 1'000'000, 3'000'000);
  const double once = rates.of(1).decode_strain;
  EXPECT_GT(once, 1.0);
  EXPECT_LT(once, 2.0) << "one look is not to be trusted";
  for (int i = 0; i < 40; ++i) add(2 << 20, 1'000'000, 3'000'000);
  EXPECT_NEAR(rates.of(1).decode_strain, 3.0, 0.01);
  EXPECT_EQ(rates.of(2).decode_strain, 1.0);
  for (int i = 0; i < 60; ++i) add(2 << 20, 1'000, 1'000'000'000);
  EXPECT_NEAR(rates.of(1).decode_strain, 8.0, 0.01);
  for (int i = 0; i < 60; ++i) add(2 << 20, 1'000'000'000, 1'000);
  EXPECT_NEAR(rates.of(1).decode_strain, 0.125, 0.01);
}

TEST_F(DecodeStrainTest, FewBytesAreKeptForTheNextLook) {
  add(700 << 10, 1'000'000, 3'000'000);
  EXPECT_EQ(rates.of(1).decode_strain, 1.0);
  add(700 << 10, 1'000'000, 3'000'000);
  EXPECT_GT(rates.of(1).decode_strain, 1.0);
}

}  // namespace
}  // namespace tern::daemon::link_rates_test
