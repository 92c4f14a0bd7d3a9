#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "plan/all_reduce.h"
#include "plan/barrier.h"
#include "plan/broadcast.h"

namespace tern::plan {
namespace {

Shape of_count(std::uint64_t count, std::uint32_t ranks = 4) {
  Shape shape;
  shape.count = count;
  shape.ranks = ranks;
  return shape;
}

TEST(Plan, EveryRankReadsItsInputOfAnAllReduceAndOnlyTheRootOfABroadcast) {
  Shape shape = of_count(10);
  shape.root = 2;
  for (shape.rank = 0; shape.rank < 4; ++shape.rank) {
    EXPECT_EQ(kAllReduce.extents(shape).input.count, 10u);
    EXPECT_EQ(kAllReduce.extents(shape).output.count, 10u);
    EXPECT_EQ(kBroadcast.extents(shape).input.count, shape.rank == 2 ? 10u : 0u);
    EXPECT_EQ(kBroadcast.extents(shape).output.count, 10u);
    EXPECT_EQ(kBarrier.extents(shape).output.count, 0u);
  }
}

TEST(Plan, OnlyAReductionLoses) {
  for (const Plan* plan : {&kAllReduce, &kBroadcast, &kBarrier}) {
    EXPECT_EQ(plan->may_lose, plan->reduces()) << plan->name;
    EXPECT_EQ(plan->has_root, plan->contributors == Ranks::root) << plan->name;
  }
}

TEST(PlanObjection, NoneToASoundShape) {
  for (const Plan* plan : {&kAllReduce, &kBroadcast}) {
    EXPECT_EQ(objection(*plan, of_count(0)), nullptr);
    EXPECT_EQ(objection(*plan, of_count(kMaxElements)), nullptr);
  }
  EXPECT_EQ(objection(kBarrier, of_count(0)), nullptr);
}

TEST(PlanObjection, SaysWhatIsWrong) {
  std::vector<std::pair<Shape, std::string>> wrong;
  wrong.emplace_back(of_count(kMaxElements + 1), "count is too large");
  wrong.emplace_back(of_count(1), "average is for floating-point types only");
  wrong.back().first.dtype = DType::i32;
  wrong.back().first.reduction = Reduction::average;
  wrong.emplace_back(of_count(1), "prescale is for floating-point types only");
  wrong.back().first.dtype = DType::u8;
  wrong.back().first.prescale = 2.0f;
  wrong.emplace_back(of_count(1), "prescale and state_scale must be finite");
  wrong.back().first.prescale = std::numeric_limits<float>::infinity();
  wrong.emplace_back(of_count(1), "prescale and state_scale must be finite");
  wrong.back().first.state_scale = std::numeric_limits<float>::quiet_NaN();
  wrong.emplace_back(of_count(1), "root must be 0..size-1");
  wrong.back().first.root = 4;
  for (const Plan* plan : {&kAllReduce, &kBroadcast}) {
    for (const auto& [shape, text] : wrong) {
      const char* problem = objection(*plan, shape);
      ASSERT_NE(problem, nullptr) << text;
      EXPECT_EQ(problem, text);
    }
  }
}

TEST(PlanObjection, ABarrierHasNeitherElementsNorATensor) {
  EXPECT_STREQ(objection(kBarrier, of_count(1)), "a barrier has no elements");
  Shape named = of_count(0);
  named.names_tensor = true;
  EXPECT_STREQ(objection(kBarrier, named), "the operation takes no tensor");
  EXPECT_EQ(objection(kAllReduce, named), nullptr);
}

using Pieces = std::vector<std::pair<std::uint64_t, Range>>;

Pieces pieces_of(const Plan& plan, const Shape& shape, Range of) {
  Pieces pieces;
  for_each_input_piece(plan, shape, of, [&](std::uint64_t first, Range piece) {
    pieces.emplace_back(first, piece);
  });
  return pieces;
}

TEST(InputPieces, ArePlainlyTheRangeWithoutAFunction) {
  const Pieces pieces = pieces_of(kAllReduce, of_count(100), {30, 20});
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].first, 0u);
  EXPECT_EQ(pieces[0].second.begin, 30u);
  EXPECT_EQ(pieces[0].second.count, 20u);
  EXPECT_TRUE(pieces_of(kAllReduce, of_count(100), {30, 0}).empty());
}

TEST(InputPieces, CoverTheRangeInOrder) {
  Plan backwards_by_threes = kAllReduce;  // groups of three elements, the last first
  backwards_by_threes.input_piece = [](const Shape& shape, Range of) {
    const std::uint64_t group = of.begin / 3, place = of.begin % 3;
    return Range{shape.count - 3 * (group + 1) + place, std::min(of.count, 3 - place)};
  };
  std::uint64_t next = 4;
  for (const auto& [first, piece] : pieces_of(backwards_by_threes, of_count(30), {4, 13})) {
    EXPECT_EQ(first, next - 4);
    for (std::uint64_t i = 0; i < piece.count; ++i, ++next) {
      EXPECT_EQ(piece.begin + i, 30 - 3 * (next / 3 + 1) + next % 3);
    }
  }
  EXPECT_EQ(next, 17u);
}

}  // namespace
}  // namespace tern::plan
