#include "daemon/tensor/tensor_tuning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "tests/rounds.h"

namespace tern::daemon {
namespace tensor_tuning_test {
namespace {

using tuner::CandidateIndex;

constexpr std::uint32_t kNodes = 3, kSelf = 1;
constexpr std::uint16_t kList = 0x1234;

enum Candidate : CandidateIndex { kRaw = 0, kLossless = 1, kThreelc = 2, kInts = 3, kTopk = 4 };

codec::Recipe recipe_of(const char* text) {
  codec::Recipe recipe;
  EXPECT_TRUE(codec::parse_recipe_quick(text, recipe)) << text;
  return recipe;
}

class TensorTuningTest : public testing::Test {
 protected:
  struct Seen {
    std::uint32_t version = 0;
    std::array<CandidateIndex, kNodes> by_node{};
    TensorTuning::Aside aside;
  };
  Seen seen() const {
    Seen seen;
    seen.by_node.fill(99);
    seen.version = tuning.read(seen.by_node, seen.aside);
    return seen;
  }

  TensorTuning tuning{{std::make_shared<CandidateRecipes>(CandidateRecipes{
                           recipe_of("raw"), recipe_of("lossless"), recipe_of("ef(3lc:s=1)"),
                           recipe_of("ef(int:bits=4)"), recipe_of("ef(topk:p=0.01+int:bits=8)")}),
                       kList},
                      {.number = 42, .nodes = kNodes, .self = kSelf, .chunks = 4}};
};

// ---- The choice

TEST_F(TensorTuningTest, BeforeAnyChoiceAllIsRaw) {
  const Seen first = seen();
  EXPECT_EQ(first.version, 0u);
  EXPECT_EQ(first.by_node, (std::array<CandidateIndex, kNodes>{kRaw, kRaw, kRaw}));
  EXPECT_EQ(first.aside.contributions, kRaw);
  EXPECT_EQ(tuning.newest().results, tuner::kNoCandidate);
  EXPECT_EQ(tuning.number(), 42u);
  EXPECT_EQ(tuning.list(), kList);
  EXPECT_TRUE(tuning.may_use(kRaw));
  EXPECT_FALSE(tuning.may_use(kThreelc));
}

TEST_F(TensorTuningTest, AChoiceIsReadByNode) {
  tuning.publish(5, {{kThreelc, kLossless}, kInts, 2, true}, kThreelc);
  const Seen read = seen();
  EXPECT_EQ(read.version, 5u);
  EXPECT_EQ(read.by_node, (std::array<CandidateIndex, kNodes>{kThreelc, kInts, kLossless}))
      << "results are at this node's own place";
  EXPECT_EQ(read.aside.contributions, kThreelc);
  EXPECT_EQ(read.aside.probe_chunks, 2);
  EXPECT_TRUE(read.aside.trial);
  EXPECT_EQ(tuning.version(), 5u);
  EXPECT_EQ(tuning.probe_chunks(), 2);
  EXPECT_EQ(tuning.now(0), kThreelc);
  EXPECT_EQ(tuning.now(kSelf), kInts);
}

TEST_F(TensorTuningTest, ALeadingNodeAnnouncesTheNewestChoice) {
  tuning.publish(1, {{kRaw, kRaw}, kRaw, 0, false}, kRaw);
  tuning.publish(2, {{kThreelc, kRaw}, kInts, 0, true}, kThreelc);
  const TensorTuning::Lead lead = tuning.newest();
  EXPECT_EQ(lead.results, kInts);
  EXPECT_EQ(lead.contributions, kThreelc);
  EXPECT_TRUE(lead.trial);
  EXPECT_EQ(lead.list, kList);
}

TEST_F(TensorTuningTest, WhatIsAllowedChanges) {
  tuning.allow(1u << kRaw | 1u << kInts);
  EXPECT_TRUE(tuning.may_use(kInts));
  EXPECT_FALSE(tuning.may_use(kThreelc));
  tuning.allow(~0u);
  EXPECT_TRUE(tuning.may_use(kTopk));
  EXPECT_FALSE(tuning.may_use(kTopk + 1)) << "there is no such candidate";
  EXPECT_FALSE(tuning.may_use(0xff));
}

TEST_F(TensorTuningTest, ServesOneKindOfOperation) {
  EXPECT_TRUE(tuning.serves(1));
  EXPECT_TRUE(tuning.serves(6)) << "none has come yet";
  EXPECT_TRUE(tuning.take(6));
  EXPECT_TRUE(tuning.take(6));
  EXPECT_FALSE(tuning.take(1));
  EXPECT_FALSE(tuning.serves(1));
  EXPECT_TRUE(tuning.serves(6));
}

// Every reader sees one choice, and never half of the next.
TEST_F(TensorTuningTest, LanesReadWhatIsConsistent) {
  const int reads = tests::rounds(500'000);
  const auto of = [](std::uint32_t version) { return static_cast<CandidateIndex>(version % 5); };
  std::array<bool, 2> right{};
  std::atomic<std::size_t> done{0};
  const auto read_often = [&](bool& mine) {
    mine = true;
    std::uint32_t last = 0;
    for (int i = 0; i < reads; ++i) {
      const Seen read = seen();
      const CandidateIndex one = of(read.version);
      mine = mine && (read.version == 0 || read.version >= last) && read.by_node[0] == one &&
             read.by_node[1] == one && read.by_node[2] == one && read.aside.contributions == one &&
             read.aside.probe_chunks == one;
      const TensorTuning::Lead lead = tuning.newest();
      mine = mine && lead.results == lead.contributions;
      last = std::max(last, read.version);
    }
    ++done;
  };
  std::array<std::thread, 2> lanes{std::thread(read_often, std::ref(right[0])),
                                   std::thread(read_often, std::ref(right[1]))};
  std::uint32_t version = 0;
  while (done < lanes.size()) {
    const CandidateIndex one = of(++version);
    tuning.publish(version, {{one, one}, one, one, false}, one);
  }
  for (std::thread& lane : lanes) lane.join();
  EXPECT_TRUE(right[0]);
  EXPECT_TRUE(right[1]);
  EXPECT_EQ(seen().version, version);
}

// ---- Blocks

wire::BlockHeader block_of(const codec::Recipe& recipe) {
  wire::BlockHeader header;
  header.codec = static_cast<std::uint8_t>(recipe.compressor);
  header.stages.sparsifier = static_cast<std::uint8_t>(recipe.sparsifier.kind);
  header.stages.quantizer = static_cast<std::uint8_t>(recipe.quantizer.kind);
  header.stages.bits = static_cast<std::uint8_t>(recipe.quantizer.bits);
  return header;
}

TEST_F(TensorTuningTest, BlocksAreKnownByTheirHeaders) {
  for (CandidateIndex made = kRaw; made <= kTopk; ++made) {
    const wire::BlockHeader header = block_of(tuning.recipe(made));
    for (CandidateIndex one = kRaw; one <= kTopk; ++one) {
      const bool shorter_raw = made == kRaw && one == kLossless;
      EXPECT_EQ(tuning.makes(one, header), one == made || shorter_raw)
          << int{one} << " of " << int{made};
    }
  }
}

TEST_F(TensorTuningTest, OtherBitsAreAnotherRecipesAndThreelcsSparsityIsNot) {
  EXPECT_FALSE(tuning.makes(kInts, block_of(recipe_of("ef(int:bits=8)"))));
  EXPECT_TRUE(tuning.makes(kThreelc, block_of(recipe_of("ef(3lc:s=1.75)"))));
  wire::BlockHeader without_bits = block_of(tuning.recipe(kInts));
  without_bits.stages.bits = 0;
  EXPECT_TRUE(tuning.makes(kInts, without_bits));
}

// ---- Residuals

TEST_F(TensorTuningTest, KnowsWhichChunksHaveAResidual) {
  EXPECT_FALSE(tuning.any_residual_pending());
  tuning.residual_pending(2) = 1;
  EXPECT_TRUE(tuning.any_residual_pending());
  EXPECT_FALSE(tuning.any_residual_pending(2));
  EXPECT_TRUE(tuning.any_residual_pending(3));
  EXPECT_TRUE(tuning.any_residual_pending(1000)) << "beyond the last there are none";
  tuning.residual_pending(2) = 0;
  EXPECT_FALSE(tuning.any_residual_pending());
}

TEST_F(TensorTuningTest, AllOrTheFirstChunksHaveOne) {
  tuning.set_residuals_pending(2);
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) {
    EXPECT_EQ(tuning.residual_pending(chunk), chunk < 2 ? 1 : 0);
  }
  tuning.set_residuals_pending(1000);
  EXPECT_EQ(tuning.residual_pending(3), 1);
  tuning.residual_pending(0) = tuning.residual_pending(3) = 0;
  tuning.set_all_residuals_pending();
  EXPECT_EQ(tuning.residual_pending(0), 1);
  EXPECT_EQ(tuning.residual_pending(3), 1);
}

TEST(TensorTuning, OfAnExactTensorHasNoResidual) {
  TensorTuning tuning({std::make_shared<CandidateRecipes>(1, recipe_of("raw")), kList},
                      {.number = 1, .nodes = 2});
  tuning.set_residuals_pending(5);
  tuning.set_all_residuals_pending();
  EXPECT_FALSE(tuning.any_residual_pending());
  EXPECT_FALSE(tuning.any_residual_pending(5));
}

// ---- A log that is replayed

TEST(ReplayedLane, ARecordHoldsUntilTheNext) {
  ReplayedLane lane;
  EXPECT_EQ(lane.op(0), nullptr);
  lane.ops = {{.use = 3, .probe_chunks = 1}, {.use = 7}};
  EXPECT_EQ(lane.op(2), nullptr);
  for (std::uint64_t use = 3; use < 7; ++use) EXPECT_EQ(lane.op(use), &lane.ops[0]) << use;
  EXPECT_EQ(lane.op(7), &lane.ops[1]);
  EXPECT_EQ(lane.op(1000), &lane.ops[1]);
}

TEST(ReplayedLane, AChunkIsOfOneUseAndPlace) {
  ReplayedLane lane;
  lane.chunks = {{3, 1, kThreelc}, {3, 4, kInts}, {7, 1, kRaw}};
  EXPECT_EQ(lane.chunk(3, 1), &lane.chunks[0]);
  EXPECT_EQ(lane.chunk(3, 4), &lane.chunks[1]);
  EXPECT_EQ(lane.chunk(7, 1), &lane.chunks[2]);
  EXPECT_EQ(lane.chunk(3, 2), nullptr);
  EXPECT_EQ(lane.chunk(4, 1), nullptr);
  EXPECT_EQ(lane.chunk(8, 1), nullptr);
}

}  // namespace
}  // namespace tensor_tuning_test
}  // namespace tern::daemon
