#include "tuner/cost_model.h"

#include <gtest/gtest.h>

namespace tern::tuner {
namespace {

OpShape shape_of(std::uint64_t bytes, std::uint32_t nodes = 2, std::uint32_t lanes = 1) {
  OpShape shape;
  shape.bytes = bytes;
  shape.nodes = nodes;
  shape.lanes = lanes;
  return shape;
}

constexpr CodecCost kPlain{0.0, 0.0, 1.0};
constexpr LaneCost kFreeLane{0.0, 0.0};

// Two nodes: half of the tensor goes out on each leg.
TEST(CostModel, ASlowLinkCostsItsBytes) {
  const Prediction op = predict(shape_of(100 << 20), {kPlain, kPlain}, kFreeLane, {1e8, 0.0});
  EXPECT_NEAR(op.wire_ns, static_cast<double>(100 << 20) / 1e8 * 1e9, 1.0);
  EXPECT_EQ(op.work_ns, 0.0);
  // The fill is two blocks, one for each leg.
  EXPECT_NEAR(op.total_ns, op.wire_ns + 2.0 * (256 << 10) * 10.0, 1.0);
}

TEST(CostModel, BeyondTheLanesSpeedAFasterLinkGainsNothing) {
  const CodecCost codec{1.0, 0.5, 0.25};
  const OpShape shape = shape_of(64 << 20);
  const double fast = predict(shape, {codec, codec}, {}, {1e12, 0.0}).total_ns;
  const double faster = predict(shape, {codec, codec}, {}, {1e13, 0.0}).total_ns;
  EXPECT_NEAR(fast, faster, 0.001 * fast);
  const Prediction slow = predict(shape, {codec, codec}, {}, {1e7, 0.0});
  EXPECT_GT(slow.wire_ns, slow.work_ns);
}

TEST(CostModel, LanesShareTheWork) {
  const CodecCost codec{1.0, 0.5, 0.25};
  const Prediction one = predict(shape_of(64 << 20), {codec, codec}, {}, {1e9, 0.0});
  const Prediction two = predict(shape_of(64 << 20, 2, 2), {codec, codec}, {}, {1e9, 0.0});
  // Each of them announces the op: a frame to the other node, and one from it.
  const double announcement_ns = 2.0 * LaneCost{}.chunk_ns;
  EXPECT_NEAR(two.work_ns - announcement_ns, 0.5 * (one.work_ns - announcement_ns), 1.0);
  EXPECT_EQ(two.wire_ns, one.wire_ns);
}

// Every node sends and receives (N - 1) / N of the tensor on each leg, 1 / N to each peer.
TEST(CostModel, MoreNodesDivideWhatGoesToEach) {
  const LaneCost lane{1.0, 0.0};
  const Prediction two = predict(shape_of(64 << 20, 2), {kPlain, kPlain}, lane, {1e9, 0.0});
  const Prediction four = predict(shape_of(64 << 20, 4), {kPlain, kPlain}, lane, {1e9, 0.0});
  EXPECT_NEAR(four.wire_ns, 0.5 * two.wire_ns, 1.0);
  EXPECT_NEAR(four.work_ns, 1.5 * two.work_ns, 1.0);
}

TEST(CostModel, AnEagerOpTakesOneHop) {
  const Prediction eager = parts_of_eager(shape_of(4096), kPlain, {}, 100e3).at(1.0);
  const Prediction legs = predict(shape_of(4096), {kPlain, kPlain}, {}, {1e9, 100e3});
  EXPECT_LT(eager.total_ns, legs.total_ns);
  EXPECT_GE(eager.total_ns, 50e3);
}

TEST(CostModel, WhatOwnersHearWithTheAnnouncementTakesTwoHops) {
  constexpr double kRoundTripNs = 100e3;
  OpShape shape = shape_of(64 << 10, 4);
  const PairCost codecs{kPlain, kPlain};
  const OpParts granted = parts_of(shape, codecs, {}, kRoundTripNs);
  shape.announces_chunks = true;
  const OpParts at_once = parts_of(shape, codecs, {}, kRoundTripNs);
  EXPECT_NEAR(granted.fixed_ns, 2.0 * kRoundTripNs, 1.0);
  EXPECT_NEAR(at_once.fixed_ns, kRoundTripNs, 1.0);
  // Three frames to others and three from them are not there.
  EXPECT_NEAR(granted.work_ns - at_once.work_ns, 6.0 * LaneCost{}.chunk_ns, 1.0);
  EXPECT_EQ(granted.peer_bytes, at_once.peer_bytes);
  // Sums that stay with their owners are granted.
  shape.legs = {.reduce = true, .broadcast = false};
  const OpParts sums = parts_of(shape, codecs, {}, kRoundTripNs);
  EXPECT_NEAR(sums.fixed_ns, 1.5 * kRoundTripNs, 1.0);
}

// One hop with the bytes of the block, for which each value is encoded once.
TEST(CostModel, AnEagerOpMayBeOfBlocks) {
  const CodecCost codec{2.0, 1.0, 0.1};
  const LaneCost lane{0.5, 0.0};
  const Prediction two = parts_of_eager(shape_of(4000), codec, lane, 0.0).at(10.0);
  EXPECT_NEAR(two.work_ns, 4000 * (2.0 + 2 * 1.0) + 2 * 400 * 0.5, 1e-6);
  EXPECT_NEAR(two.wire_ns, 400 * 10.0, 1e-6);
  const Prediction four = parts_of_eager(shape_of(4000, 4), codec, lane, 0.0).at(10.0);
  EXPECT_NEAR(four.work_ns, 4000 * (2.0 + 4 * 1.0) + 3 * 2 * 400 * 0.5, 1e-6);
  EXPECT_NEAR(four.wire_ns, 400 * 10.0, 1e-6) << "each peer gets the whole";
}

constexpr OpLegs kReduceScatter{.broadcast = false};
constexpr OpLegs kAllGather{.reduce = false};
constexpr OpLegs kReduce{.broadcast = false, .one_owner = true};

OpShape shape_with(const OpLegs& legs, std::uint64_t bytes, std::uint32_t nodes) {
  OpShape shape = shape_of(bytes, nodes);
  shape.legs = legs;
  return shape;
}

// An all_reduce is a reduce_scatter and an all_gather, but for what is announced.
TEST(CostModel, LegsAddUp) {
  const CodecCost reduce{1.0, 0.5, 0.25};
  const CodecCost broadcast{0.7, 0.3, 0.5};
  const PairCost codecs{reduce, broadcast};
  for (const std::uint32_t nodes : {2u, 3u, 8u}) {
    const OpParts both = parts_of(shape_of(8 << 20, nodes), codecs, {}, 100e3);
    const OpParts first = parts_of(shape_with(kReduceScatter, 8 << 20, nodes), codecs, {}, 100e3);
    const OpParts second = parts_of(shape_with(kAllGather, 8 << 20, nodes), codecs, {}, 100e3);
    const double announcements_ns = 2.0 * (nodes - 1.0) * LaneCost{}.chunk_ns;
    EXPECT_NEAR(both.work_ns, first.work_ns + second.work_ns - announcements_ns, 1e-3);
    EXPECT_DOUBLE_EQ(both.peer_bytes, first.peer_bytes + second.peer_bytes);
    EXPECT_DOUBLE_EQ(both.chunk_ns, first.chunk_ns + second.chunk_ns);
    EXPECT_DOUBLE_EQ(both.fixed_ns, 200e3) << "announcement, grant, contribution, result";
    EXPECT_DOUBLE_EQ(first.fixed_ns, 150e3);
    EXPECT_DOUBLE_EQ(second.fixed_ns, 100e3);
  }
}

TEST(CostModel, WhatTakesOneHop) {
  OpShape shape = shape_of(4096);
  EXPECT_FALSE(shape.takes_one_hop(true)) << "nothing is eager";
  shape.eager_bytes = 4096;
  EXPECT_TRUE(shape.takes_one_hop(true));
  EXPECT_FALSE(shape.takes_one_hop(false)) << "blocks go to owners and come back";
  EXPECT_TRUE(shape.goes_to_owners_and_back());
  shape.eager_blocks = true;
  EXPECT_TRUE(shape.takes_one_hop(false));
  EXPECT_FALSE(shape.goes_to_owners_and_back());
  for (const OpLegs& legs : {kReduceScatter, kAllGather, kReduce}) {
    shape.legs = legs;
    EXPECT_TRUE(shape.takes_one_hop(true));
    EXPECT_FALSE(shape.takes_one_hop(false));
  }
  shape.legs = {};
  shape.bytes = 4097;
  EXPECT_FALSE(shape.takes_one_hop(true));
}

TEST(CostModel, ALegThatAnOpDoesNotHaveCostsNothing) {
  const CodecCost dear{100.0, 100.0, 10.0};
  const OpShape sums = shape_with(kReduceScatter, 8 << 20, 4);
  const OpShape moves = shape_with(kAllGather, 8 << 20, 4);
  EXPECT_EQ(predict(sums, {kPlain, dear}, {}, {1e9, 0.0}).total_ns,
            predict(sums, {kPlain, kPlain}, {}, {1e9, 0.0}).total_ns);
  EXPECT_EQ(predict(moves, {dear, kPlain}, {}, {1e9, 0.0}).total_ns,
            predict(moves, {kPlain, kPlain}, {}, {1e9, 0.0}).total_ns);
}

// The root decodes what all others send; each of these encodes once.
TEST(CostModel, OfAReduceTheBusierNodeCounts) {
  const OpShape shape = shape_with(kReduce, 8 << 20, 5);
  const double bytes = 8 << 20;
  EXPECT_NEAR(parts_of(shape, {{0.0, 1.0, 1.0}, {}}, kFreeLane, 0.0).work_ns, 4.0 * bytes, 1.0);
  EXPECT_NEAR(parts_of(shape, {{10.0, 1.0, 1.0}, {}}, kFreeLane, 0.0).work_ns, 10.0 * bytes, 1.0);
  EXPECT_NEAR(parts_of(shape, {{0.0, 1.0, 0.5}, {}}, kFreeLane, 0.0).peer_bytes, 0.5 * bytes, 1.0);
}

TEST(CostModel, AnEagerOpSendsEachPeerWhatConcernsIt) {
  const LaneCost lane;
  const auto bytes_of = [&](const OpLegs& legs) {
    return parts_of_eager(shape_with(legs, 4096, 4), kPlain, lane, 0.0).peer_bytes;
  };
  EXPECT_EQ(bytes_of({}), 4096.0);
  EXPECT_EQ(bytes_of(kReduce), 4096.0);
  EXPECT_EQ(bytes_of(kReduceScatter), 1024.0);
  EXPECT_EQ(bytes_of(kAllGather), 1024.0);
}

TEST(CostModel, PartsGiveThePredictionAtAnyRate) {
  const CodecCost reduce{1.0, 0.5, 0.25};
  const CodecCost broadcast{0.7, 0.3, 0.5};
  const OpShape shape = shape_of(5'000'000, 3, 2);
  const OpParts parts = parts_of(shape, {reduce, broadcast}, {}, 30e3);
  for (double rate = 1e6; rate < 1e12; rate *= 3.0) {
    EXPECT_DOUBLE_EQ(parts.at(1e9 / rate).total_ns,
                     predict(shape, {reduce, broadcast}, {}, {rate, 30e3}).total_ns);
  }
}

}  // namespace
}  // namespace tern::tuner
