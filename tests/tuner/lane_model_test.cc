#include "tuner/lane_model.h"

#include <gtest/gtest.h>

#include <random>

namespace tern::tuner {
namespace {

constexpr std::uint64_t kSeed = 11;

// 0.7 ns a byte and 9 us a block.
LaneMeasurement work_of(std::mt19937_64& engine, double load, double codec_ns) {
  const std::uint64_t blocks = 20 + engine() % 100;
  const std::uint64_t bytes = blocks * (1000 + engine() % 250'000);
  const double work = 0.7 * static_cast<double>(bytes) + 9000.0 * static_cast<double>(blocks);
  return {load * work + codec_ns, codec_ns, bytes, blocks};
}

LaneModel learnt(std::mt19937_64& engine) {
  LaneModel model;
  for (int i = 0; i < 400; ++i) model.learn(work_of(engine, 1.0, 5e6), 1.0);
  return model;
}

TEST(LaneModel, LearnsWhatALaneCosts) {
  RecordProperty("seed", static_cast<int>(kSeed));
  std::mt19937_64 engine(kSeed);
  const LaneModel model = learnt(engine);
  EXPECT_NEAR(model.cost().byte_ns, 0.7, 0.05);
  EXPECT_NEAR(model.cost().chunk_ns, 9000.0, 1500.0);
}

TEST(LaneModel, SeesThatOthersUseTheCore) {
  RecordProperty("seed", static_cast<int>(kSeed));
  std::mt19937_64 engine(kSeed);
  LaneModel model = learnt(engine);
  EXPECT_NEAR(model.load_of(work_of(engine, 3.0, 0.0)), 3.0, 0.3);
  // What is known of the lane stays.
  for (int i = 0; i < 100; ++i) model.learn(work_of(engine, 3.0, 0.0), 3.0);
  EXPECT_NEAR(model.cost().byte_ns, 0.7, 0.05);
}

// First touches of memory take long, and are no slow lane.
TEST(LaneModel, SoonForgetsTheFirstIntervals) {
  RecordProperty("seed", static_cast<int>(kSeed));
  std::mt19937_64 engine(kSeed);
  LaneModel model;
  for (int i = 0; i < 8; ++i) model.learn(work_of(engine, 4.0, 0.0), 1.0);
  EXPECT_GT(model.cost().byte_ns, 2.0);
  for (int i = 0; i < 24; ++i) model.learn(work_of(engine, 1.0, 0.0), 1.0);
  EXPECT_NEAR(model.cost().byte_ns, 0.7, 0.15);
}

// What was learnt before a restart is not unlearnt by the first interval after it.
TEST(LaneModel, GoesOnFromWhatItIsTold) {
  LaneModel model;
  model.set_cost({2.5, 60'000.0});
  LaneMeasurement one;
  one.blocks = 1;
  one.wire_bytes = 1000;
  one.busy_ns = 2.5 * 1000 + 60'000.0;
  model.learn(one, 1.0);
  EXPECT_NEAR(model.cost().byte_ns, 2.5, 1e-6);
  EXPECT_NEAR(model.cost().chunk_ns, 60'000.0, 1e-3);
}

TEST(LaneModel, SaysNothingOfALaneThatCodes) {
  RecordProperty("seed", static_cast<int>(kSeed));
  std::mt19937_64 engine(kSeed);
  const LaneModel model = learnt(engine);
  EXPECT_EQ(model.load_of(work_of(engine, 1.0, 1e9)), 0.0);
  EXPECT_EQ(LaneModel().load_of(work_of(engine, 1.0, 0.0)), 0.0);
}

}  // namespace
}  // namespace tern::tuner
