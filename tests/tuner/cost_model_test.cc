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
