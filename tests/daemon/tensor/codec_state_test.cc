#include "daemon/tensor/codec_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tern::daemon {
namespace codec_state_test {
namespace {

using Shape = CodecState::Shape;

codec::Recipe recipe_of(const char* text) {
  codec::Recipe recipe;
  EXPECT_TRUE(codec::parse_recipe_quick(text, recipe)) << text;
  return recipe;
}

// Three chunks, the last of which is short.
Shape of_node(std::uint32_t self) {
  return {.count = 10, .chunk_elements = 4, .nodes = 3, .self = self};
}

CodecState state_of(const char* recipe, const Shape& shape = of_node(1)) {
  CodecState state;
  EXPECT_TRUE(state.allocate(recipe_of(recipe), shape)) << recipe;
  return state;
}

std::vector<float> residuals_of(const CodecState& state) {
  return {state.sender(0), state.sender(0) + 10};
}

void set_residuals(const CodecState& state, float value) {
  std::fill_n(state.sender(0), 10, value);
}

// ---- What a recipe needs

TEST(CodecState, WhatRemembersNothingIsEmpty) {
  for (const char* recipe : {"raw", "none(bf16)", "lossless"}) {
    const CodecState state = state_of(recipe);
    EXPECT_TRUE(state.empty()) << recipe;
    EXPECT_EQ(state.bytes(), 0u) << recipe;
    EXPECT_EQ(state.sender(4), nullptr) << recipe;
    EXPECT_EQ(state.codebook(1), nullptr) << recipe;
    EXPECT_FALSE(state.has_streams()) << recipe;
  }
}

TEST(CodecState, IsFreedInSlices) {
  constexpr std::uint64_t kSlices = 3;
  const std::uint64_t count = kSlices * kFreeSliceBytes / sizeof(float);
  const Shape shape{.count = count, .chunk_elements = count / 4, .nodes = 3, .announced = true};
  CodecState residual = state_of("ef(3lc:s=1)", shape);
  std::uint64_t slices = 0;
  while (residual.free_some()) ++slices;
  EXPECT_GE(slices, 2 * (kSlices - 1)) << "the residual, and what is saved of it";
  EXPECT_TRUE(residual.empty());
  CodecState streams = state_of("diana(qsgd:levels=7)", shape);
  slices = 0;
  while (streams.free_some()) ++slices;
  EXPECT_GE(slices, kSlices * (kSlices - 1)) << "what this node sends, and of each other one";
}

TEST(CodecState, ErrorFeedbackHasAResidualOfZeros) {
  const CodecState state = state_of("ef(3lc:s=1)");
  EXPECT_FALSE(state.empty());
  EXPECT_EQ(residuals_of(state), std::vector<float>(10));
  EXPECT_EQ(state.sender(8), state.sender(0) + 8);
  EXPECT_FALSE(state.has_streams());
  EXPECT_EQ(state.alpha(), 1.0f);
}

TEST(CodecState, KeepsAtBothEndsWhatStreamsBuildOn) {
  const CodecState shifts = state_of("diana(qsgd:levels=7)");
  EXPECT_TRUE(shifts.has_streams());
  EXPECT_TRUE(shifts.keeps_shifts());
  EXPECT_FALSE(shifts.keeps_last_bytes());
  const CodecState last = state_of("xordelta");
  EXPECT_TRUE(last.has_streams());
  EXPECT_FALSE(last.keeps_shifts());
  EXPECT_TRUE(last.keeps_last_bytes());
  EXPECT_FALSE(last.empty());
}

TEST(CodecState, SaysBeforeWhetherARecipeHasStreams) {
  for (const char* recipe : {"diana(qsgd:levels=7)", "ef21(topk:p=0.1)", "xordelta"}) {
    EXPECT_TRUE(CodecState::has_streams(recipe_of(recipe))) << recipe;
  }
  for (const char* recipe : {"raw", "lossless", "ef(3lc:s=1)", "none(lloyd:bits=2)"}) {
    EXPECT_FALSE(CodecState::has_streams(recipe_of(recipe))) << recipe;
  }
}

TEST(CodecState, AShiftMovesAsItsRecipeSays) {
  EXPECT_EQ(state_of("diana:alpha=0.25(qsgd:levels=7)").alpha(), 0.25f);
  EXPECT_EQ(state_of("ef21(topk:p=0.1)").alpha(), 1.0f);
  EXPECT_EQ(CodecState::alpha_of(recipe_of("ef(3lc:s=1)"), 4), 1.0f);
  EXPECT_LT(CodecState::alpha_of(recipe_of("diana(qsgd:levels=1)"), 4096), 1.0f);
}

TEST(CodecState, CountsItsBytes) {
  constexpr std::uint64_t kFloats = 10 * sizeof(float);
  constexpr std::uint64_t kLevels = 3 * codec::kCodebookLevels * sizeof(float);
  constexpr std::uint64_t kSteps = 9 * sizeof(std::uint64_t);  // of each node, chunk
  Shape announced = of_node(1);
  announced.announced = true;
  const struct {
    const char* recipe;
    Shape shape;
    std::uint64_t bytes;
  } cases[] = {
      {"ef(3lc:s=1)", of_node(1), kFloats},
      {"ef(3lc:s=1)", announced, 2 * kFloats},
      {"none(lloyd:bits=2)", of_node(1), kLevels},
      {"none(lloyd:bits=2)", announced, kLevels},
      {"ef(lloyd:bits=2)", of_node(1), kFloats + kLevels},
      {"ef(lloyd:bits=2)", announced, 2 * (kFloats + kLevels)},
      // Its own streams; and of two other nodes their contributions to a third, and their results.
      {"diana(qsgd:levels=7)", of_node(1), kFloats + 2 * kFloats * 2 / 3 + kSteps},
      {"ef21(topk:p=0.1)", of_node(0), kFloats + 2 * kFloats * 2 / 3 + kSteps},
      {"xordelta", of_node(2), kFloats + 2 * kFloats * 2 / 3 + kSteps},
      {"raw", announced, 0},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(CodecState::bytes_of(recipe_of(one.recipe), one.shape), one.bytes) << one.recipe;
    EXPECT_EQ(state_of(one.recipe, one.shape).bytes(), one.bytes) << one.recipe;
  }
}

TEST(CodecState, EveryChunkHasACodebook) {
  const CodecState state = state_of("ef(lloyd:bits=2)");
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) {
    const float* const levels = state.codebook(chunk);
    EXPECT_EQ(levels, state.codebook(0) + chunk * codec::kCodebookLevels);
    EXPECT_TRUE(std::all_of(levels, levels + codec::kCodebookLevels,
                            [](float level) { return level == 0.0f; }));
  }
}

// ---- Streams

TEST(CodecState, CountsTheBlocksOfEachStream) {
  CodecState state = state_of("diana(qsgd:levels=7)");
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) {
    EXPECT_EQ(state.sender_step(chunk), 0u);
    state.sender_step(chunk) = 10 + chunk;
    state.receiver_step(0, chunk) = 20 + chunk;
    state.receiver_step(2, chunk) = 30 + chunk;
  }
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) {
    EXPECT_EQ(state.sender_step(chunk), 10u + chunk);
    EXPECT_EQ(state.receiver_step(0, chunk), 20u + chunk);
    EXPECT_EQ(state.receiver_step(2, chunk), 30u + chunk);
  }
}

TEST(CodecState, EveryNodesStreamHasAShift) {
  CodecState state = state_of("diana:alpha=0.25(qsgd:levels=7)");
  state.receiver_step(2, 1) = 5;
  const codec::ShiftStream stream = state.stream(2, 1, 4, 0.5f);
  EXPECT_EQ(*stream.step, 5u);
  EXPECT_EQ(stream.alpha, 0.25f);
  EXPECT_EQ(stream.state_scale, 0.5f);
  std::fill_n(stream.shift, 4, 3.0f);
  ++*stream.step;
  EXPECT_EQ(state.receiver_step(2, 1), 6u);
  EXPECT_EQ(state.stream(2, 0, 0, 1.0f).shift[4], 3.0f);
  EXPECT_EQ(state.stream(2, 0, 0, 1.0f).shift[3], 0.0f);
  EXPECT_EQ(state.stream(2, 2, 8, 1.0f).shift[0], 0.0f);
  EXPECT_EQ(state.stream(0, 1, 4, 1.0f).shift[0], 0.0f);
  EXPECT_EQ(state.sender(4)[0], 0.0f);
}

TEST(CodecState, LastBytesAreOfTheElementsOwnType) {
  Shape halves = of_node(1);
  halves.dtype = DType::bf16;
  const CodecState state = state_of("xordelta", halves);
  const auto sent = state.sent_bytes(4, 3);
  EXPECT_EQ(sent.size(), 6u);
  EXPECT_EQ(sent.data(), state.sent_bytes(0, 10).data() + 8);
  const auto received = state.received_bytes(2, 8, 2);
  EXPECT_EQ(received.size(), 4u);
  EXPECT_EQ(received.data(), state.received_bytes(2, 0, 10).data() + 16);
  std::fill(sent.begin(), sent.end(), std::byte{7});
  for (const std::uint32_t node : {0u, 2u}) {
    const auto all = state.received_bytes(node, 0, 10);
    EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](std::byte b) { return b == std::byte{}; }));
  }
  // As many bytes as elements of the widest type have, which are no floats.
  Shape wide = of_node(1);
  wide.dtype = DType::f32;
  EXPECT_EQ(state_of("xordelta", wide).sent_bytes(0, 10).size(), 40u);
}

// A block that does not begin anew says how many came before it.
TEST(CodecState, AfterALossNoStepOfTheChunkIsTheNext) {
  CodecState state = state_of("diana(qsgd:levels=7)");
  for (const std::uint32_t node : {0u, 2u}) {
    for (std::uint32_t chunk = 0; chunk < 3; ++chunk) state.receiver_step(node, chunk) = 4;
  }
  state.sender_step(1) = 9;
  state.lose_received(1);
  for (const std::uint32_t node : {0u, 2u}) {
    EXPECT_EQ(state.receiver_step(node, 0), 4u);
    EXPECT_GT(state.receiver_step(node, 1), std::uint64_t{1} << 63) << "no stream gets so far";
    EXPECT_EQ(state.receiver_step(node, 2), 4u);
  }
  EXPECT_EQ(state.sender_step(1), 9u) << "nothing of it was lost";
}

TEST(CodecState, WithoutStreamsThereIsNothingToLose) {
  CodecState state = state_of("ef(3lc:s=1)");
  set_residuals(state, 2.0f);
  state.lose_received(1);
  EXPECT_EQ(residuals_of(state), std::vector<float>(10, 2.0f));
}

// ---- Before an op

class SavedState : public testing::Test {
 protected:
  static Shape shape() {
    Shape shape = of_node(1);
    shape.announced = true;
    return shape;
  }
};

TEST_F(SavedState, IsThereUntilTheNextIsSaved) {
  CodecState state = state_of("ef(3lc:s=1)", shape());
  set_residuals(state, 1.0f);
  state.save(7);
  set_residuals(state, 2.0f);
  EXPECT_FALSE(state.restore(6));
  EXPECT_EQ(residuals_of(state), std::vector<float>(10, 2.0f));
  EXPECT_TRUE(state.restore(7));
  EXPECT_EQ(residuals_of(state), std::vector<float>(10, 1.0f));
  set_residuals(state, 3.0f);
  state.save(8);
  set_residuals(state, 4.0f);
  EXPECT_FALSE(state.restore(7));
  EXPECT_EQ(residuals_of(state), std::vector<float>(10, 4.0f));
  EXPECT_TRUE(state.restore(8));
  EXPECT_EQ(residuals_of(state), std::vector<float>(10, 3.0f));
}

TEST_F(SavedState, HasTheCodebooksToo) {
  CodecState state = state_of("ef(lloyd:bits=2)", shape());
  state.codebook(2)[codec::kCodebookLevels - 1] = 0.75f;
  state.save(0);
  state.codebook(2)[codec::kCodebookLevels - 1] = 0.5f;
  state.codebook(0)[0] = 0.25f;
  ASSERT_TRUE(state.restore(0));
  EXPECT_EQ(state.codebook(2)[codec::kCodebookLevels - 1], 0.75f);
  EXPECT_EQ(state.codebook(0)[0], 0.0f);
}

TEST_F(SavedState, IsNotThereBeforeTheFirstIsSaved) {
  EXPECT_FALSE(state_of("ef(3lc:s=1)", shape()).restore(0));
}

TEST_F(SavedState, IsKeptOfAnnouncedResidualsAlone) {
  CodecState state = state_of("ef(3lc:s=1)");
  set_residuals(state, 1.0f);
  state.save(7);
  EXPECT_FALSE(state.restore(7));
  CodecState none = state_of("none(lloyd:bits=2)", shape());
  none.save(7);
  EXPECT_FALSE(none.restore(7));
}

// ---- Of an earlier declaration

TEST(AdoptedResidual, IsTheOthers) {
  CodecState old = state_of("ef(3lc:s=1)"), state = state_of("ef(int:bits=4)");
  set_residuals(old, 5.0f);
  set_residuals(state, 6.0f);
  EXPECT_TRUE(state.adopt_residual(old));
  EXPECT_EQ(residuals_of(state), std::vector<float>(10, 5.0f));
  CodecState none = state_of("raw");
  EXPECT_TRUE(state.adopt_residual(none));
  EXPECT_EQ(residuals_of(state), std::vector<float>(10, 5.0f)) << "the other had none";
}

TEST(AdoptedResidual, MayBeOfWhatWasNotAnnounced) {
  Shape announced = of_node(1);
  announced.announced = true;
  CodecState old = state_of("ef(3lc:s=1)"), state = state_of("ef(3lc:s=1)", announced);
  set_residuals(old, 5.0f);
  EXPECT_TRUE(state.adopt_residual(old));
  state.save(1);
  set_residuals(state, 6.0f);
  EXPECT_TRUE(state.restore(1));
  EXPECT_EQ(residuals_of(state), std::vector<float>(10, 5.0f));
}

TEST(AdoptedResidual, IsOfTheSameShape) {
  const std::array<void (*)(Shape&), 6> changes = {[](Shape& shape) { shape.count = 11; },
                                                   [](Shape& shape) { shape.chunk_elements = 5; },
                                                   [](Shape& shape) { shape.nodes = 4; },
                                                   [](Shape& shape) { shape.self = 2; },
                                                   [](Shape& shape) { shape.dtype = DType::f16; },
                                                   [](Shape& shape) { shape.eager = true; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Shape other = of_node(1);
    changes[i](other);
    CodecState old = state_of("ef(3lc:s=1)", other), state = state_of("ef(3lc:s=1)");
    set_residuals(old, 5.0f);
    EXPECT_FALSE(state.adopt_residual(old)) << "change " << i;
    EXPECT_EQ(residuals_of(state), std::vector<float>(10)) << "change " << i;
    EXPECT_EQ(residuals_of(old), std::vector<float>(10, 5.0f)) << "change " << i;
  }
}

TEST(AdoptedResidual, IsNoShift) {
  CodecState old = state_of("diana(qsgd:levels=7)"), state = state_of("ef(3lc:s=1)");
  EXPECT_FALSE(state.adopt_residual(old));
  EXPECT_FALSE(old.adopt_residual(state));
}

}  // namespace
}  // namespace codec_state_test
}  // namespace tern::daemon
