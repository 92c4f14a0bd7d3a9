#include "daemon/lane/verifier.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/daemon/lane/lane_rig.h"

namespace tern::daemon::verifier_test {
namespace {

constexpr std::uint64_t kChunk = 16, kCount = 5 * kChunk + 3;

// Ranks 0 and 1 are on node 0, rank 2 is on node 1.
collective::GroupShape shape_of(std::uint32_t node) {
  collective::GroupShape shape;
  shape.node = node;
  shape.chunk_bytes = kChunk * sizeof(float);
  shape.eager_bytes = 0;
  shape.max_ops_in_flight = 2;
  shape.verify = true;
  shape.ranks = {{0, 1}, {2}};
  return shape;
}

// One node with the outputs of its ranks, all of the same values.
class Node {
 public:
  explicit Node(const collective::GroupShape& its_shape)
      : shape(its_shape),
        ops(shape),
        lane_ops(ops.table().slots(), shape.local_ranks(), 4),
        blocks(ops, lane_ops, {}),
        verifier(shape, 3, ops.table().slots()),
        outputs(shape.local_ranks(), std::vector<float>(kCount)) {
    for (auto& output : outputs) {
      for (std::uint64_t i = 0; i < kCount; ++i) output[i] = static_cast<float>(i);
      regions.push_back({std::as_writable_bytes(std::span(output)).data(), kCount * sizeof(float)});
    }
  }
  // All ranks submit the use-th op.
  collective::OpId begin(std::uint64_t use = 0) {
    collective::OpId op = collective::kNoSlot;
    for (std::uint32_t rank = 0; rank < shape.local_ranks(); ++rank) {
      op = lane_test::submit(ops, {7, use}, lane_test::all_reduce_of(kCount), rank);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      OpRank slot;
      slot.output = {&regions[i], 0, regions[i].bytes};
      lane_ops.join(op, static_cast<std::uint32_t>(i), slot);
    }
    return op;
  }
  // As its frame carries them.
  std::vector<std::byte> tell(collective::OpId op) {
    verifier.begin({.kind = collective::ActionKind::verify, .op = op});
    for (;;) {
      const Verifier::Taken taken = verifier.take_some(blocks, kCount);
      if (taken.action.kind == collective::ActionKind::none) continue;
      EXPECT_EQ(taken.action.op, op);
      const auto payload = std::as_bytes(taken.checksums);
      return {payload.begin(), payload.end()};
    }
  }

  const collective::GroupShape shape;
  collective::GroupOps ops;
  LaneOps lane_ops;
  OpBlocks blocks;
  Verifier verifier;
  std::vector<std::vector<float>> outputs;
  std::vector<Region> regions;
};

// The verdict on both nodes, which is the same.
Verifier::Verdict compared(Node& first, Node& second) {
  const collective::OpId here = first.begin(), there = second.begin();
  const auto from_first = first.tell(here), from_second = second.tell(there);
  EXPECT_TRUE(first.verifier.accept(here, 1, from_second));
  EXPECT_TRUE(second.verifier.accept(there, 0, from_first));
  const Verifier::Verdict verdict = first.verifier.compare(here);
  const Verifier::Verdict other = second.verifier.compare(there);
  EXPECT_EQ(verdict.code, other.code);
  EXPECT_STREQ(verdict.text, other.text);
  return verdict;
}

TEST(Verifier, EqualResultsAgree) {
  Node first(shape_of(0)), second(shape_of(1));
  EXPECT_EQ(compared(first, second).code, Errc::ok);
}

TEST(Verifier, TheRankThatDiffersIsNamedOnEveryNode) {
  for (std::uint64_t at : {std::uint64_t{0}, kCount - 1}) {
    Node first(shape_of(0)), second(shape_of(1));
    first.outputs[1][at] += 1;
    const Verifier::Verdict verdict = compared(first, second);
    EXPECT_EQ(verdict.code, Errc::result_mismatch);
    EXPECT_STREQ(verdict.text, "the result differs from the other ranks' on rank 1") << at;
  }
}

TEST(Verifier, AnEagerResultIsComparedToo) {
  collective::GroupShape shapes[] = {shape_of(0), shape_of(1)};
  shapes[0].eager_bytes = shapes[1].eager_bytes = kCount * sizeof(float);
  Node first(shapes[0]), second(shapes[1]);
  second.outputs[0][kCount - 1] += 1;
  EXPECT_STREQ(compared(first, second).text, "the result differs from the other ranks' on rank 2");
}

// Each lane speaks of its own chunks, while the others may still be written.
TEST(Verifier, ALaneLooksAtItsOwnChunksOnly) {
  int lanes_that_see_it = 0;
  for (std::uint32_t lane = 0; lane < 2; ++lane) {
    collective::GroupShape shapes[] = {shape_of(0), shape_of(1)};
    for (auto& shape : shapes) {
      shape.lanes = 2;
      shape.lane = lane;
    }
    Node first(shapes[0]), second(shapes[1]);
    second.outputs[0][2 * kChunk] += 1;
    if (compared(first, second).code != Errc::ok) ++lanes_that_see_it;
  }
  EXPECT_EQ(lanes_that_see_it, 1);
}

TEST(Verifier, ANodeSpeaksOfItsOwnRanksWhereItIsAsked) {
  Node first(shape_of(0)), second(shape_of(1));
  const collective::OpId op = first.begin();
  auto payload = second.tell(second.begin());
  ASSERT_EQ(payload.size(), first.verifier.payload_bytes(1));
  const wire::VerifyBody forged{1, 0};
  std::memcpy(payload.data(), &forged, sizeof(forged));
  EXPECT_FALSE(first.verifier.accept(op, 1, payload));
  collective::GroupShape unasked = shape_of(0);
  unasked.verify = false;
  EXPECT_EQ(Verifier(unasked, 3, 4).payload_bytes(1), 0u);
}

TEST(Verifier, OpsInFlightAreKeptApart) {
  Node first(shape_of(0)), second(shape_of(1));
  const collective::OpId op = first.begin(0), there = second.begin(0);
  first.tell(op);
  first.verifier.accept(op, 1, second.tell(there));
  const collective::OpId next = first.begin(1);
  second.outputs[0][0] += 1;
  first.tell(next);
  first.verifier.accept(next, 1, second.tell(second.begin(1)));
  EXPECT_EQ(first.verifier.compare(op).code, Errc::ok);
  EXPECT_EQ(first.verifier.compare(next).code, Errc::result_mismatch);
}

// A lane's turn is no longer for an op that is large.
TEST(Verifier, TakesNoMoreBytesAtOnceThanItIsAskedFor) {
  Node node(shape_of(0));
  const collective::OpId op = node.begin();
  node.verifier.begin({.kind = collective::ActionKind::verify, .op = op});
  const std::uint64_t chunks = node.ops.op(op).chunks.owned(0) + node.ops.op(op).chunks.owned(1);
  ASSERT_EQ(chunks, 6u);
  std::uint64_t steps = 1;
  while (node.verifier.take_some(node.blocks, 1).checksums.empty()) ++steps;
  EXPECT_GE(steps, chunks * node.shape.local_ranks());
  EXPECT_FALSE(node.verifier.is_busy());
}

TEST(Verifier, AnOpThatHasFailedHasNoChecksumsAndTheNextOneHas) {
  Node first(shape_of(0)), second(shape_of(1));
  const collective::OpId failed = first.begin(0), op = first.begin(1);
  first.verifier.begin({.kind = collective::ActionKind::verify, .op = failed});
  first.verifier.begin({.kind = collective::ActionKind::verify, .op = op});
  first.verifier.take_some(first.blocks, 1);
  first.ops.fail(failed, {Errc::cancelled, 0, "cancelled"});
  const Verifier::Taken none = first.verifier.take_some(first.blocks, 1);
  EXPECT_EQ(none.action.op, failed);
  EXPECT_TRUE(none.checksums.empty());
  Verifier::Taken taken;
  while (taken.checksums.empty()) taken = first.verifier.take_some(first.blocks, 1);
  EXPECT_EQ(taken.action.op, op);
  second.begin(0);
  first.verifier.accept(op, 1, second.tell(second.begin(1)));
  EXPECT_EQ(first.verifier.compare(op).code, Errc::ok);
}

// ---- Verdicts on checksums that other nodes have told

class VerdictTest : public ::testing::Test {
 protected:
  // One rank on each node; each tells its checksum.
  Verifier::Verdict verdict_on(const std::vector<std::uint32_t>& sums) {
    collective::GroupShape shape;
    shape.verify = true;
    const auto size = static_cast<std::uint32_t>(sums.size());
    for (std::uint32_t rank = 0; rank < size; ++rank) shape.ranks.push_back({rank});
    Verifier verifier(shape, size, 1);
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      const wire::VerifyBody body{rank, sums[rank]};
      EXPECT_TRUE(verifier.accept(0, rank, std::as_bytes(std::span(&body, 1))));
    }
    return verifier.compare(0);
  }
};

TEST_F(VerdictTest, TheMostAreRightOrElseTheLowestRank) {
  EXPECT_STREQ(verdict_on({8, 5, 5, 9, 5}).text,
               "the result differs from the other ranks' on rank 0 3");
  EXPECT_STREQ(verdict_on({5, 9}).text, "the result differs from the other ranks' on rank 1");
  EXPECT_STREQ(verdict_on({5, 9, 9, 5}).text,
               "the result differs from the other ranks' on rank 1 2");
}

TEST_F(VerdictTest, ALongListIsCutBetweenRanks) {
  std::vector<std::uint32_t> sums(64);
  for (std::uint32_t rank = 2; rank < sums.size(); ++rank) sums[rank] = 100 + rank;
  const Verifier::Verdict verdict = verdict_on(sums);
  const std::string text = verdict.text;
  EXPECT_LT(text.size(), sizeof(verdict.text) - 1) << "not cut inside a number";
  EXPECT_NE(text.find("on rank 2 3 4 "), std::string::npos) << text;
}

}  // namespace
}  // namespace tern::daemon::verifier_test
