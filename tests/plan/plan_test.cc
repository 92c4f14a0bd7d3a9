#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "plan/cut.h"
#include "plan/plans.h"

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

TEST(Plan, OnlyABroadcastIsFromARoot) {
  for (const Plan* plan : {&kAllReduce, &kBroadcast, &kBarrier}) {
    EXPECT_EQ(plan->has_root, plan->contributors == Ranks::root) << plan->name;
  }
}

TEST(Plan, GradientsAndDeltasAreLossyButOfABroadcastDeltasAlone) {
  for (const Plan* plan : {&kAllReduce, &kReduce, &kReduceScatter, &kAllGather, &kBroadcast}) {
    EXPECT_TRUE(plan->may_lose_of(Role::delta)) << plan->name;
    EXPECT_EQ(plan->may_lose_of(Role::gradient), plan != &kBroadcast) << plan->name;
    EXPECT_FALSE(plan->may_lose_of(Role::exact)) << plan->name;
    EXPECT_FALSE(plan->may_lose_of(Role::weights)) << plan->name;
  }
  for (const Plan* plan : {&kGather, &kScatter, &kAllToAll, &kBarrier}) {
    EXPECT_FALSE(plan->may_lose_of(Role::delta)) << plan->name;
  }
}

TEST(Plan, WhatTakesNoTensorIsLossyWithoutOne) {
  for (const Plan* plan : {&kAllReduce, &kReduce, &kReduceScatter, &kAllGather, &kBroadcast,
                           &kGather, &kScatter, &kBarrier}) {
    EXPECT_FALSE(plan->loses_without_memory) << plan->name;
  }
  for (const Plan* plan : {&kAllToAll, &kSend, &kRecv}) {
    EXPECT_TRUE(plan->loses_without_memory) << plan->name;
    EXPECT_FALSE(plan->takes_tensor) << plan->name;
  }
  EXPECT_TRUE(kAllToAll.may_decline_eager()) << "what is compressed is not eager";
}

TEST(Plan, OfAReduceScatterAloneSharesComeDownwards) {
  for (const Plan* plan : {&kAllReduce, &kReduce, &kAllGather, &kBroadcast, &kGather, &kScatter,
                           &kAllToAll, &kSend, &kRecv}) {
    EXPECT_FALSE(plan->sends_shares_down()) << plan->name;
  }
  EXPECT_TRUE(kReduceScatter.sends_shares_down());
  const Shares shares{.count = 40, .ranks = 4};
  const std::uint32_t of_rank_1[] = {0, 3, 2, 1};
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(shares.down_from(1, i), of_rank_1[i]);
  EXPECT_EQ(shares.down_from(0, 0), 3u);
  EXPECT_EQ((Shares{.count = 40, .ranks = 1}).down_from(0, 0), 0u);
}

TEST(Plan, TheTunerHasTheKindsThatLoseByTheirRole) {
  for (const Plan* plan : {&kAllReduce, &kReduce, &kReduceScatter, &kAllGather}) {
    EXPECT_TRUE(plan->is_tuned()) << plan->name;
  }
  for (const Plan* plan : {&kBroadcast, &kGather, &kScatter, &kAllToAll, &kBarrier}) {
    EXPECT_FALSE(plan->is_tuned()) << plan->name;
  }
}

TEST(Plan, AnAllReduceAloneHasTwoLegs) {
  EXPECT_FALSE(kAllReduce.has_one_leg());
  for (const Plan* plan : {&kReduce, &kReduceScatter, &kAllGather, &kBroadcast, &kAllToAll}) {
    EXPECT_TRUE(plan->has_one_leg()) << plan->name;
  }
}

// The way of the bytes is another, and nothing that a rank says or gets.
TEST(Plan, ThatIsRelayedIsTheSameOperation) {
  for (const Plan* plan : {&kReduce, &kBroadcast}) {
    const Plan& relayed = *plan->relayed;
    EXPECT_EQ(relayed.number, plan->number);
    EXPECT_STREQ(relayed.name, plan->name);
    EXPECT_EQ(relayed.work, plan->work);
    EXPECT_EQ(relayed.contributors, plan->contributors);
    EXPECT_EQ(relayed.receivers, plan->receivers);
    EXPECT_EQ(relayed.alike, plan->alike);
    EXPECT_EQ(relayed.may_lose, plan->may_lose);
    EXPECT_TRUE(relayed.has_relays() && relayed.has_root && relayed.takes_tensor);
    EXPECT_EQ(relayed.eager, Eager::nothing) << "what fits in an announcement goes there";
    EXPECT_EQ(relayed.relayed, nullptr);
    for (const std::uint32_t rank : {0u, 1u}) {
      Shape shape = of_count(10);
      shape.ranks = 3;
      shape.root = 1;
      shape.rank = rank;
      const Extents one = plan->extents(shape), other = relayed.extents(shape);
      EXPECT_EQ(one.input.count, other.input.count);
      EXPECT_EQ(one.output.count, other.output.count);
    }
  }
  for (const Plan* plan : {&kAllReduce, &kReduceScatter, &kAllGather, &kGather, &kScatter}) {
    EXPECT_EQ(plan->relayed, nullptr) << plan->name;
  }
}

TEST(Plan, OfARelayedReduceTheOwnersKeepNoSums) {
  EXPECT_TRUE(kReduce.keeps_sums());
  EXPECT_FALSE(kRelayedReduce.keeps_sums());
  EXPECT_TRUE(kRelayedReduce.hides_sums());
  EXPECT_FALSE(kAllReduce.hides_sums());
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
  wrong.emplace_back(of_count(1), "average is for floating-point and complex types only");
  wrong.back().first.dtype = DType::i32;
  wrong.back().first.reduction = Reduction::average;
  wrong.emplace_back(of_count(1), "prescale is for floating-point and complex types only");
  wrong.back().first.dtype = DType::u8;
  wrong.back().first.prescale = 2.0f;
  wrong.emplace_back(of_count(1), "prescale and state_scale must be finite");
  wrong.back().first.prescale = std::numeric_limits<float>::infinity();
  wrong.emplace_back(of_count(1), "prescale and state_scale must be finite");
  wrong.back().first.state_scale = std::numeric_limits<float>::quiet_NaN();
  wrong.emplace_back(of_count(1), "root must be 0..size-1");
  wrong.back().first.root = 4;
  for (const auto& [shape, text] : wrong) {
    const char* problem = objection(kAllReduce, shape);
    ASSERT_NE(problem, nullptr) << text;
    EXPECT_EQ(problem, text);
  }
}

TEST(PlanObjection, WhatMovesIsOfAnyTypeAndIsNotScaled) {
  for (const Plan* plan : {&kBroadcast, &kAllGather, &kGather, &kScatter, &kAllToAll}) {
    Shape shape = of_count(8);
    shape.reduction = Reduction::average;
    for (std::uint8_t dtype = 0; dtype <= static_cast<std::uint8_t>(kLastDType); ++dtype) {
      shape.dtype = static_cast<DType>(dtype);
      EXPECT_EQ(objection(*plan, shape), nullptr) << plan->name << " of " << int{dtype};
    }
    shape.dtype = DType::f32;
    shape.prescale = 0.5f;
    EXPECT_STREQ(objection(*plan, shape), "prescale is for reductions only");
  }
}

TEST(PlanObjection, ReductionsAreForTheTypesThatHaveThem) {
  using enum DType;
  const std::vector<std::pair<Reduction, std::vector<DType>>> allowed = {
      {Reduction::sum, {f32, f64, f16, bf16, i64, i32, u8, i8, i16, u16, u32, u64, c64, c128}},
      {Reduction::product, {f32, f64, f16, bf16, i64, i32, u8, i8, i16, u16, u32, u64, c64, c128}},
      {Reduction::average, {f32, f64, f16, bf16, c64, c128}},
      {Reduction::min, {f32, f64, f16, bf16, i64, i32, u8, i8, i16, u16, u32, u64}},
      {Reduction::max, {f32, f64, f16, bf16, i64, i32, u8, i8, i16, u16, u32, u64}},
      {Reduction::bit_and, {i64, i32, u8, boolean, i8, i16, u16, u32, u64}},
      {Reduction::bit_or, {i64, i32, u8, boolean, i8, i16, u16, u32, u64}},
      {Reduction::bit_xor, {i64, i32, u8, boolean, i8, i16, u16, u32, u64}}};
  for (const auto& [reduction, types] : allowed) {
    for (std::uint8_t number = 0; number <= static_cast<std::uint8_t>(kLastDType); ++number) {
      Shape shape = of_count(4);
      shape.dtype = static_cast<DType>(number);
      shape.reduction = reduction;
      const bool may = std::find(types.begin(), types.end(), shape.dtype) != types.end();
      for (const Plan* plan : {&kAllReduce, &kReduce, &kReduceScatter}) {
        EXPECT_EQ(objection(*plan, shape) == nullptr, may)
            << plan->name << " " << reduction_name(reduction) << " of " << dtype_name(shape.dtype);
      }
    }
  }
}

// ---- Shares and pairs ----

TEST(PlanObjection, SharesAddUpToTheCount) {
  Shape shape = of_count(10);
  const std::uint64_t counts[] = {4, 0, 6, 0};
  shape.counts = counts;
  for (const Plan* plan : {&kReduceScatter, &kAllGather, &kGather, &kScatter}) {
    EXPECT_EQ(objection(*plan, shape), nullptr);
    shape.count = 9;
    EXPECT_STREQ(objection(*plan, shape), "the counts add up to more than count");
    shape.count = 11;
    EXPECT_STREQ(objection(*plan, shape), "the counts add up to less than count");
    shape.count = 10;
  }
  EXPECT_STREQ(objection(kAllReduce, shape), "the operation takes no counts");
  shape.counts = nullptr;
  EXPECT_STREQ(objection(kGather, shape),
               "count must be a multiple of the group's size, or give counts");
}

TEST(Plan, ARankHoldsItsShareOrAllOfIt) {
  Shape shape = of_count(10, 3);
  const std::uint64_t counts[] = {4, 1, 5};
  shape.counts = counts;
  shape.root = 1;
  shape.rank = 2;
  EXPECT_EQ(kAllGather.extents(shape).input.begin, 5u);
  EXPECT_EQ(kAllGather.extents(shape).input.count, 5u);
  EXPECT_EQ(kAllGather.extents(shape).output.count, 10u);
  EXPECT_EQ(kReduceScatter.extents(shape).output.begin, 5u);
  EXPECT_EQ(kReduceScatter.extents(shape).input.count, 10u);
  EXPECT_EQ(kGather.extents(shape).output.count, 0u) << "rank 2 is not the root";
  EXPECT_EQ(kScatter.extents(shape).input.count, 0u);
  shape.rank = 1;
  EXPECT_EQ(kGather.extents(shape).output.count, 10u);
  EXPECT_EQ(kReduce.extents(shape).output.count, 10u);
  EXPECT_EQ(kScatter.extents(shape).input.count, 10u);
}

TEST(Plan, PairsHaveElementsOfTheirOwnAtBothEnds) {
  Shape shape = of_count(0, 2);
  const std::uint64_t counts[] = {3, 4, 1, 0};
  shape.counts = counts;
  for (shape.rank = 0; shape.rank < 2; ++shape.rank) {
    const Extents extents = kAllToAll.extents(shape);
    EXPECT_EQ(extents.input.count, 7u);
    EXPECT_EQ(extents.output.count, 1u);
    EXPECT_FALSE(extents.output.contains(extents.input.begin));
  }
  EXPECT_EQ(objection(kAllToAll, shape), nullptr);
  shape.count = 7;
  EXPECT_STREQ(objection(kAllToAll, shape), "with counts for each rank, count must be 0");
  const std::uint64_t huge[] = {kMaxElements, 1, 0, 0};
  shape.count = 0;
  shape.counts = huge;
  EXPECT_STREQ(objection(kAllToAll, shape), "the counts add up to too many elements");
}

TEST(PlanObjection, ABarrierHasNeitherElementsNorATensor) {
  EXPECT_STREQ(objection(kBarrier, of_count(1)), "a barrier has no elements");
  Shape named = of_count(0);
  named.names_tensor = true;
  EXPECT_STREQ(objection(kBarrier, named), "the operation takes no tensor");
  EXPECT_EQ(objection(kAllReduce, named), nullptr);
}

// ---- From rank to rank ----

TEST(Plan, ASendHasAnInputAndARecvAnOutput) {
  const Shape shape = of_count(10);
  EXPECT_EQ(kSend.extents(shape).input.count, 10u);
  EXPECT_EQ(kSend.extents(shape).output.count, 0u);
  EXPECT_EQ(kRecv.extents(shape).input.count, 0u);
  EXPECT_EQ(kRecv.extents(shape).output.count, 10u);
  EXPECT_TRUE(kSend.passes() && kSend.sends());
  EXPECT_TRUE(kRecv.passes() && !kRecv.sends());
  EXPECT_FALSE(kBroadcast.passes() || kBroadcast.sends());
}

TEST(PlanObjection, ThePeerIsARankAndOfARecvPerhapsAny) {
  Shape shape = of_count(10);
  shape.root = 3;
  EXPECT_EQ(objection(kSend, shape), nullptr);
  EXPECT_EQ(objection(kRecv, shape), nullptr);
  shape.root = 4;
  EXPECT_STREQ(objection(kSend, shape), "the peer of a send must be 0..size-1");
  EXPECT_STREQ(objection(kRecv, shape), "the peer of a recv must be 0..size-1, or any source");
  shape.root = shm::kAnySource;
  EXPECT_NE(objection(kSend, shape), nullptr);
  EXPECT_EQ(objection(kRecv, shape), nullptr);
  shape.root = 0;
  shape.names_tensor = true;
  EXPECT_STREQ(objection(kSend, shape), "the operation takes no tensor");
  shape.names_tensor = false;
  const std::uint64_t counts[] = {1, 2, 3, 4};
  shape.counts = counts;
  EXPECT_STREQ(objection(kRecv, shape), "the operation takes no counts");
}

TEST(Lanes, BothEndsOfWhatIsPassedAreOnOne) {
  for (std::uint32_t tag = 0; tag < 100; ++tag) {
    const Place place{.sequence = tag, .chunk_bytes = 64, .nodes = 2, .lanes = 3};
    Shape sender = of_count(1000), receiver = of_count(2000);
    sender.rank = 1;
    sender.root = receiver.rank = 2;
    receiver.root = shm::kAnySource;
    const std::uint32_t used = lanes(kSend, sender, place);
    EXPECT_EQ(used, 1u << shm::lane_of_tag(2, tag, 3));
    EXPECT_EQ(used, lanes(kRecv, receiver, place));
    EXPECT_EQ(lanes(kAllReduce, sender, place), cut(kAllReduce, sender, place).lanes_used());
  }
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
