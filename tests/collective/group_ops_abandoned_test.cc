// Failed ops that a rank of a node never submits.

#include <gtest/gtest.h>

#include "group_ops_net.h"

namespace tern::collective {
namespace group_ops_abandoned_test {

constexpr OpKey kX{7, 0};

// Ranks 0 and 1 are on one node, and rank 1 has not come to the op when it fails.
class GroupOpsAbandoned : public testing::Test {
 protected:
  void abandon(const OpKey& key) {
    ASSERT_TRUE(net.submit(0, key, all_reduce_of(300)));
    net.run();
    net.ops(0).fail(net.ops(0).find(key), {Errc::cancelled, 0, "cancelled by rank 0"});
    net.run();
    EXPECT_EQ(net.outcome(0, key).code, Errc::cancelled);
  }
  void expect_that_all_can_use(const OpKey& key) {
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(net.submit(rank, key, all_reduce_of(300)));
    }
    net.run();
    net.expect_all(key, Errc::ok);
    net.expect_clean();
  }

  GroupOpsNet net{{.ranks_of_node = {2, 1}, .max_ops = 4}, 1};
};

TEST_F(GroupOpsAbandoned, AnOpIsRememberedAndKeepsNobodyBusy) {
  abandon(kX);
  for (std::uint32_t node : {0u, 1u}) {
    EXPECT_EQ(net.ops(node).table().live(), 1u);
    EXPECT_TRUE(net.ops(node).table().idle());
  }
  ASSERT_TRUE(net.submit(1, kX, all_reduce_of(300)));
  EXPECT_FALSE(net.ops(0).table().idle());
  net.run();
  EXPECT_EQ(net.outcome(1, kX).code, Errc::cancelled);
  EXPECT_EQ(net.ops(0).table().live(), 0u);
}

TEST_F(GroupOpsAbandoned, AnOpIsForgottenAtALaterUseByAllRanks) {
  for (std::uint64_t use = 0; use < 100; use += 2) {
    abandon({7, use});
    expect_that_all_can_use({7, use + 1});
  }
}

TEST_F(GroupOpsAbandoned, AnonymousOpsAreForgottenToo) {
  abandon({0, 1});
  abandon({0, 2});
  expect_that_all_can_use({0, 3});
}

TEST_F(GroupOpsAbandoned, AnOpIsForgottenWithItsTensor) {
  for (std::uint64_t tensor = 1; tensor <= 200; ++tensor) {
    abandon({tensor, 0});
    for (std::uint32_t node : {0u, 1u}) net.ops(node).drop_tensor(tensor);
    net.run();
    net.expect_clean();
  }
  expect_that_all_can_use({1000, 0});
}

// Nobody would ever submit it there, and the others would wait for that.
TEST_F(GroupOpsAbandoned, WhatOthersUseOfADroppedTensorFails) {
  ASSERT_TRUE(net.submit(2, kX, all_reduce_of(300)));
  net.run();
  net.ops(0).drop_tensor(kX.tensor);
  net.run();
  EXPECT_EQ(net.outcome(2, kX).code, Errc::cancelled);
  EXPECT_EQ(net.outcome(2, kX).text, "the node of rank 0 has released the tensor");
  ASSERT_TRUE(net.submit(2, {kX.tensor, 1}, all_reduce_of(300)));
  net.run();
  EXPECT_EQ(net.outcome(2, {kX.tensor, 1}).code, Errc::cancelled);
  net.expect_clean();
}

TEST_F(GroupOpsAbandoned, ADroppedTensorsOpThatAllHaveSubmittedEndsWell) {
  for (std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(net.submit(rank, kX, all_reduce_of(300)));
  net.run();
  net.ops(0).drop_tensor(kX.tensor);
  ASSERT_TRUE(net.submit(2, kX, all_reduce_of(300)));
  net.run();
  net.expect_all(kX, Errc::ok);
  net.expect_clean();
}

// Its tensors are dropped after that.
TEST_F(GroupOpsAbandoned, OfARankThatHasLeftItIsSaidThatItHas) {
  net.ops(1).on_rank_left(0);
  net.ops(1).drop_tensor(kX.tensor);
  for (std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(net.submit(rank, kX, all_reduce_of(300)));
  net.run();
  for (std::uint32_t rank : {0u, 1u}) EXPECT_EQ(net.outcome(rank, kX).code, Errc::group_left);
}

// Its failure may come when the tensor has been released.
TEST_F(GroupOpsAbandoned, ADroppedTensorsOpsAreNotHeardOfAgain) {
  ASSERT_TRUE(net.submit(2, kX, all_reduce_of(300)));
  net.run();
  net.ops(0).drop_tensor(kX.tensor);
  net.ops(1).fail(net.ops(1).find(kX), {Errc::cancelled, 2, "cancelled by rank 2"});
  net.run();
  EXPECT_EQ(net.ops(0).table().live(), 0u);
  OpId op = kNoSlot;
  EXPECT_EQ(net.ops(0).on_submit({0, {kX.tensor, 5}, all_reduce_of(300)}, op),
            GroupOps::SubmitResult::released);
}

}  // namespace group_ops_abandoned_test
}  // namespace tern::collective
