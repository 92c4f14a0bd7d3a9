// The simulator's truth itself: bounds that any pipeline keeps to.
#include <gtest/gtest.h>

#include "bench/tuner_pipeline.h"

namespace tern::bench {
namespace {

PipelineSetting setting_of(double rate) {
  PipelineSetting setting;
  setting.bytes = 16 << 20;
  setting.chunk_bytes = 256 << 10;
  setting.rate = rate;
  setting.round_trip_ns = 50e3;
  setting.byte_ns = 0.4;
  setting.chunk_ns = 4000.0;
  return setting;
}

std::array<NodePlan, 2> both(const StageCost& cost, std::uint32_t probes = 0) {
  const NodePlan plan{cost, cost, probes, {0.0, 0.15, 1.0}};
  return {plan, plan};
}

TEST(Pipeline, ASlowLinkIsFullAllTheTime) {
  const PipelineSetting setting = setting_of(12.5e6);
  const PipelineOutcome op = run_pipeline(setting, both({0.2, 0.1, 0.5}));
  // Half of the tensor at half its size on each leg.
  const double wire_ns = 0.5 * setting.bytes / setting.rate * 1e9;
  EXPECT_GE(op.ns, wire_ns);
  EXPECT_LT(op.ns, 1.1 * wire_ns);
  for (const NodeOutcome& node : op.nodes) {
    EXPECT_GT(node.longest_train, 16u);
    EXPECT_LT(node.busy_ns, op.ns);
  }
}

TEST(Pipeline, AFastLinkWaitsForTheLane) {
  const PipelineOutcome op = run_pipeline(setting_of(1e12), both({1.0, 0.5, 0.25}));
  for (const NodeOutcome& node : op.nodes) {
    EXPECT_GT(node.busy_ns, 0.9 * op.ns);
    EXPECT_LE(node.busy_ns, op.ns);
    EXPECT_EQ(node.longest_train, 0u);
  }
}

TEST(Pipeline, AllThatIsSentIsReceived) {
  for (const double bytes : {1.0, 100e3, 256e3, 300e3, 5e6, 16e6}) {
    PipelineSetting setting = setting_of(1e9);
    setting.bytes = bytes;
    const PipelineOutcome op = run_pipeline(setting, both({0.2, 0.1, 0.5}));
    // Each contribution and each result is sent once and received once.
    EXPECT_NEAR(op.nodes[0].wire_bytes + op.nodes[1].wire_bytes, 2.0 * bytes, 1e-6 * bytes);
    EXPECT_EQ(op.nodes[0].blocks, op.nodes[1].blocks);
  }
}

TEST(Pipeline, ABusyCoreTakesItsTime) {
  PipelineSetting setting = setting_of(1e12);
  const double alone = run_pipeline(setting, both({1.0, 0.5, 0.25})).ns;
  setting.load = 3.0;
  EXPECT_NEAR(run_pipeline(setting, both({1.0, 0.5, 0.25})).ns / alone, 3.0, 0.1);
}

TEST(Pipeline, ProbesAndStallsCost) {
  const PipelineSetting setting = setting_of(125e6);
  const StageCost threelc{0.3, 0.1, 0.02};
  const double plain = run_pipeline(setting, both(threelc)).ns;
  const PipelineOutcome probed = run_pipeline(setting, both(threelc, 4));
  EXPECT_GT(probed.ns, plain);
  EXPECT_GE(probed.nodes[0].longest_train, 3u);
  StageCost stalling = threelc;
  stalling.stall_every = 4;
  stalling.stall_ns = 1e6;
  EXPECT_GT(run_pipeline(setting, both(stalling)).ns, plain + 5e6);
}

// A kernel that is given less than it could send sees less.
TEST(Pipeline, ABoundIsBelowTheRate) {
  for (const double rate : {12.5e6, 125e6, 1.25e9, 12.5e9}) {
    const PipelineOutcome op = run_pipeline(setting_of(rate), both({0.3, 0.1, 0.02}));
    EXPECT_LT(op.nodes[0].lower_bound, rate);
    EXPECT_GT(op.nodes[0].lower_bound, 0.0);
  }
}

}  // namespace
}  // namespace tern::bench
