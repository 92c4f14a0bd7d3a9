#include "collective/op_table.h"

#include <gtest/gtest.h>

namespace tern::collective {
namespace {

TEST(OpTable, FindsWhatLivesByItsKey) {
  OpTable ops(4, 2, 1);
  const OpId a = ops.create({7, 0});
  const OpId b = ops.create({7, 1});
  EXPECT_EQ(ops.find({7, 0}), a);
  EXPECT_EQ(ops.find({7, 1}), b);
  EXPECT_EQ(ops.find({8, 0}), kNoSlot);
  EXPECT_EQ(ops.live(), 2u);
  ops.remove(a);
  EXPECT_EQ(ops.find({7, 0}), kNoSlot);
  EXPECT_FALSE(ops.in_use(a));
  EXPECT_EQ(ops.live(), 1u);
}

TEST(OpTable, AFullTableCreatesNothingUntilOneIsRemoved) {
  OpTable ops(2, 1, 1);
  const OpId a = ops.create({0, 0});
  ASSERT_NE(ops.create({0, 1}), kNoSlot);
  EXPECT_EQ(ops.create({0, 2}), kNoSlot);
  EXPECT_EQ(ops.find_or_create({0, 2}), kNoSlot);
  ops.remove(a);
  EXPECT_EQ(ops.create({0, 2}), a);
}

TEST(OpTable, WhatHasEndedDoesNotComeBack) {
  OpTable ops(4, 1, 1);
  const OpId a = ops.find_or_create({7, 5});
  EXPECT_FALSE(ops.superseded({7, 5}));
  EXPECT_EQ(ops.find_or_create({7, 5}), a);
  ops[a].submitted = 1;
  ops.remove(a);
  EXPECT_TRUE(ops.superseded({7, 5}));
  EXPECT_TRUE(ops.superseded({7, 4}));
  EXPECT_FALSE(ops.superseded({7, 6}));
  EXPECT_FALSE(ops.superseded({8, 0}));
  EXPECT_EQ(ops.find_or_create({7, 5}), kNoSlot);
}

// The tensors that other nodes name have no end.
TEST(OpTable, WhatNoLocalRankHasSubmittedLeavesNothing) {
  OpTable ops(4, 2, 4);
  for (std::uint64_t tensor = 1; tensor <= 100; ++tensor) ops.remove(ops.create({tensor, 0}));
  EXPECT_EQ(ops.tensors(), 0u);
  EXPECT_FALSE(ops.superseded({100, 0}));
}

TEST(OpTable, IsIdleWhereAllThatLivesIsRemembered) {
  OpTable ops(4, 2, 4);
  EXPECT_TRUE(ops.idle());
  const OpId one = ops.create({7, 0}), other = ops.create({7, 1});
  ops.remember(one);
  ops.remember(one);
  EXPECT_FALSE(ops.idle());
  ops.remember(other);
  EXPECT_TRUE(ops.idle());
  ops.recall(one);
  ops.recall(one);
  EXPECT_FALSE(ops.idle());
  EXPECT_EQ(ops.remembered(), 1u);
  ops.remove(one);
  EXPECT_TRUE(ops.idle());
}

TEST(OpTable, ADroppedTensorsOpsDoNotComeBack) {
  OpTable ops(4, 2, 4);
  const OpId live = ops.create({7, 0});
  ops.drop_tensor(7);
  EXPECT_EQ(ops.find({7, 0}), live);
  EXPECT_EQ(ops.find_or_create({7, 1}), kNoSlot);
  ops.remove(live);
  EXPECT_EQ(ops.find_or_create({7, 0}), kNoSlot);
  EXPECT_NE(ops.find_or_create({8, 0}), kNoSlot);
}

// Of those that are dropped the last ones are known, and of the others nothing.
TEST(OpTable, TensorsThatComeAndGoLeaveNothing) {
  OpTable ops(4, 2, 4);
  constexpr std::uint64_t kTensors = 40'000, kKnown = 16'384;
  for (std::uint64_t tensor = 1; tensor <= kTensors; ++tensor) {
    const OpId op = ops.create({tensor, 0});
    ops[op].submitted = 1;
    ops.remove(op);
    ops.drop_tensor(tensor);
    ops.drop_tensor(tensor);
  }
  for (const std::uint64_t known : {kTensors, kTensors - kKnown + 1}) {
    EXPECT_TRUE(ops.is_dropped(known));
    EXPECT_TRUE(ops.superseded({known, 0}));
    EXPECT_FALSE(ops.superseded({known, 1}));
  }
  EXPECT_FALSE(ops.is_dropped(kTensors - kKnown));
  EXPECT_FALSE(ops.superseded({kTensors - kKnown, 0}));
}

TEST(OpTable, ANewOpKnowsNothingOfTheLastInItsSlot) {
  OpTable ops(1, 3, 1);
  const OpId a = ops.create({1, 0});
  ops[a].status = Errc::internal;
  ops.hear(a, 2).told = 0b11;
  ops.remove(a);
  const OpId b = ops.create({2, 0});
  ASSERT_EQ(a, b);
  EXPECT_FALSE(ops[b].failed());
  EXPECT_EQ(ops.heard(b, 2).told, 0u);
  EXPECT_EQ(ops[b].order, 1u);
}

TEST(OpTable, AUseWaitsForEarlierOnesThatHaveNotFailed) {
  OpTable ops(4, 1, 1);
  const OpId second = ops.create({7, 1});
  EXPECT_FALSE(ops.waits_for_earlier_use(second));
  const OpId first = ops.create({7, 0});
  EXPECT_TRUE(ops.waits_for_earlier_use(second));
  EXPECT_EQ(ops.earliest_use(7), first);
  ops[first].status = Errc::internal;
  EXPECT_FALSE(ops.waits_for_earlier_use(second));
  EXPECT_EQ(ops.earliest_use(7), second);
  EXPECT_EQ(ops.earliest_use(9), kNoSlot);
}

TEST(OpTable, AnonymousOpsWaitForNothing) {
  OpTable ops(4, 1, 1);
  ops.create({0, 0});
  EXPECT_FALSE(ops.waits_for_earlier_use(ops.create({0, 1})));
}

}  // namespace
}  // namespace tern::collective
