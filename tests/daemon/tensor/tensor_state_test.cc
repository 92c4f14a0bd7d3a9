#include "daemon/tensor/tensor_state.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace tensor_state_test {
namespace {

codec::Recipe recipe_of(const char* text) {
  codec::Recipe recipe;
  EXPECT_TRUE(codec::parse_recipe_quick(text, recipe)) << text;
  return recipe;
}

void allocate(TensorState& state, const char* recipe) {
  EXPECT_TRUE(
      state.codec.allocate(recipe_of(recipe), {.count = 10, .chunk_elements = 4, .nodes = 2}));
}

TEST(TensorTotals, AreTheSumsOverAllLanes) {
  TensorState state(3);
  std::uint64_t ones = 1;
  for (TensorLane& lane : state.lanes) {
    TensorCounts& counts = lane.counts;
    counts.bytes_raw = 100 * ones;
    counts.bytes_sent = 10 * ones;
    counts.encode_ns = 2 * ones;
    counts.queue_ns = 3 * ones;
    counts.wire_ns = 4 * ones;
    counts.decode_ns = 5 * ones;
    counts.wait_ns = 6 * ones;
    counts.raw_fallbacks = 7 * ones;
    counts.resets = 8 * ones;
    counts.input_energy = 9.0 * static_cast<double>(ones);
    counts.residual_energy = 0.5 * static_cast<double>(ones);
    ones = ones * 1000 + 1;
  }
  const std::uint64_t sum = 1 + 1001 + 1'001'001;
  state.resets = 5;
  const TensorTotals totals = total(state);
  EXPECT_EQ(totals.bytes_raw, 100 * sum);
  EXPECT_EQ(totals.bytes_sent, 10 * sum);
  EXPECT_EQ(totals.encode_ns, 2 * sum);
  EXPECT_EQ(totals.queue_ns, 3 * sum);
  EXPECT_EQ(totals.wire_ns, 4 * sum);
  EXPECT_EQ(totals.decode_ns, 5 * sum);
  EXPECT_EQ(totals.wait_ns, 6 * sum);
  EXPECT_EQ(totals.raw_fallbacks, 7 * sum);
  EXPECT_EQ(totals.resets, 8 * sum + 5) << "those of its declarations too";
  EXPECT_EQ(totals.input_energy, 9.0 * static_cast<double>(sum));
  EXPECT_EQ(totals.residual_energy, 0.5 * static_cast<double>(sum));
}

TEST(TensorTotals, CountAnOpOnceForAllLanes) {
  TensorState state(3);
  state.lanes[0].counts.ops = 4;
  state.lanes[1].counts.ops = 6;
  EXPECT_EQ(total(state).ops, 6u);
}

TEST(TensorTotals, NameTheKindOfTheLastOp) {
  TensorState state(3);
  EXPECT_EQ(total(state).kind, 0) << "there was none";
  state.lanes[0].counts.ops = 4;
  state.lanes[0].counts.kind = 1;
  state.lanes[1].counts.ops = 6;
  state.lanes[1].counts.kind = 7;
  state.lanes[2].counts.ops = 4;
  state.lanes[2].counts.kind = 1;
  EXPECT_EQ(total(state).kind, 7) << "of the lane that is ahead";
}

TEST(TensorTotals, RatiosAreOfWhatThereIs) {
  TensorTotals totals;
  EXPECT_EQ(totals.ratio(), 1.0);
  EXPECT_EQ(totals.residual_ratio(), 0.0);
  totals.bytes_raw = 300;
  totals.bytes_sent = 100;
  totals.input_energy = 4.0;
  totals.residual_energy = 36.0;
  EXPECT_EQ(totals.ratio(), 3.0);
  EXPECT_EQ(totals.residual_ratio(), 3.0) << "of norms, not of energies";
}

TEST(TensorState, HasAsManyBytesAsItsCodecState) {
  TensorState state;
  EXPECT_EQ(state.state_bytes(), 0u);
  allocate(state, "ef(3lc:s=1)");
  EXPECT_EQ(state.state_bytes(), 10 * sizeof(float));
}

TEST(TensorState, IsIncompleteInDoubtOrWhileAClientHasPartOfIt) {
  TensorState state;
  EXPECT_FALSE(state.is_incomplete());
  state.doubtful = true;
  EXPECT_TRUE(state.is_incomplete());
  state.doubtful = false;
  state.residual_with_client = true;
  EXPECT_TRUE(state.is_incomplete());
}

TEST(TensorHistory, IsWhatALaneHasLeft) {
  TensorState state(2);
  allocate(state, "ef(3lc:s=1)");
  EXPECT_FALSE(state.has_history());
  state.lanes[1].state_touched = true;
  EXPECT_TRUE(state.has_history());
}

TEST(TensorHistory, IsWhatWasImportedOrIsInDoubt) {
  for (const auto change : {+[](TensorState& state) { state.imported = true; },
                            +[](TensorState& state) { state.doubtful = true; },
                            +[](TensorState& state) { state.residual_with_client = true; }}) {
    TensorState state(2);
    change(state);
    EXPECT_FALSE(state.has_history()) << "without codec state there is nothing to lose";
    allocate(state, "ef(3lc:s=1)");
    EXPECT_TRUE(state.has_history());
  }
}

// The tuner may have sent raw ever since: then lanes have left nothing.
TEST(TensorHistory, OfATunedTensorIsInItsChunks) {
  TensorState state(2);
  allocate(state, "ef(3lc:s=1)");
  state.tuning = std::make_unique<TensorTuning>(
      TensorTuning::Candidates{std::make_shared<CandidateRecipes>(1, recipe_of("raw")), 7},
      TensorTuning::Place{.number = 1, .nodes = 2, .chunks = 3});
  state.lanes[0].state_touched = true;
  EXPECT_FALSE(state.has_history());
  state.tuning->residual_pending(2) = 1;
  EXPECT_TRUE(state.has_history());
}

}  // namespace
}  // namespace tensor_state_test
}  // namespace tern::daemon
