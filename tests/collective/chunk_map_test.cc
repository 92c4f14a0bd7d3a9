#include "collective/chunk_map.h"

#include <gtest/gtest.h>

#include "plan/plans.h"

namespace tern::collective {
namespace chunk_map_test {

constexpr std::uint64_t kElements = 16;

// Ranks 0 and 2 on node 0, rank 1 on node 1, rank 3 on node 2; equal shares of two chunks.
class OfEveryPlan : public testing::Test {
 protected:
  OfEveryPlan() { group_.ranks = {{0, 2}, {1}, {3}}; }

  ChunkMap map_of(const plan::Plan& plan, std::uint32_t root_node = 0) const {
    shm::Cut cut{.count = 8 * kElements,
                 .dtype = DType::f32,
                 .chunk_bytes = kElements * sizeof(float),
                 .nodes = 3,
                 .lanes = 1};
    if (plan.has_shares()) {
      cut.shares = 4;
      cut.largest_share = 2 * kElements;
    }
    return {plan, shm::make_sharding(cut), group_, {.root_node = root_node}};
  }

  GroupShape group_;
};

TEST_F(OfEveryPlan, AnAllReduceIsOwnedInTurnAndGoesToAll) {
  const ChunkMap map = map_of(plan::kAllReduce);
  EXPECT_EQ(map.owned(0), 3u);
  EXPECT_EQ(map.owned(2), 2u);
  EXPECT_TRUE(map.has(0, map.chunk(0, 2)));
  EXPECT_FALSE(map.has(1, map.chunk(0, 2)));
  EXPECT_TRUE(map.leaves(0, map.chunk(0, 0)));
  EXPECT_EQ(map.receiver(0), ChunkMap::kEveryNode);
  EXPECT_EQ(map.sent(2, 1), 2u);
}

TEST_F(OfEveryPlan, AReduceStaysWithTheRoot) {
  const ChunkMap map = map_of(plan::kReduce, 1);
  EXPECT_EQ(map.owned(1), 8u);
  EXPECT_EQ(map.owned(0), 0u);
  EXPECT_EQ(map.receiver(map.chunk(1, 5)), 1u);
  EXPECT_EQ(map.sent(1, 0), 0u);
  EXPECT_FALSE(map.leaves(1, map.chunk(1, 5)));
}

TEST_F(OfEveryPlan, ARelayedReduceGoesFromTheOthersToTheRoot) {
  const ChunkMap map = map_of(plan::kRelayedReduce, 1);
  EXPECT_EQ(map.owned(1), 0u);
  EXPECT_EQ(map.owned(0) + map.owned(2), 8u);
  EXPECT_EQ(map.sent(0, 1), map.owned(0));
  EXPECT_EQ(map.sent(0, 2), 0u);
  EXPECT_EQ(map.receiver(map.chunk(0, 0)), 1u);
  EXPECT_FALSE(map.is_sent_on());
}

TEST_F(OfEveryPlan, ARelayedBroadcastGoesFromTheRootToOwnersAndFromThereToTheRest) {
  const ChunkMap map = map_of(plan::kRelayedBroadcast, 1);
  EXPECT_EQ(map.owned(1), 8u);
  EXPECT_EQ(map.sent(1, 0), map.owned(0));
  EXPECT_EQ(map.sent(0, 2), map.owned(0));
  EXPECT_EQ(map.sent(0, 1), 0u);
  EXPECT_TRUE(map.is_sent_on());
  const std::uint32_t number = map.chunk(0, 0);
  EXPECT_TRUE(map.sends(1, 0, number));
  EXPECT_FALSE(map.sends(1, 2, number));
  EXPECT_TRUE(map.sends(0, 2, number));
  EXPECT_FALSE(map.sends(0, 1, number));
}

TEST_F(OfEveryPlan, AReduceScatterStaysWithTheRankOfTheShare) {
  const ChunkMap map = map_of(plan::kReduceScatter);
  EXPECT_EQ(map.owned(0), 4u);
  EXPECT_EQ(map.owned(1), 2u);
  for (std::uint32_t node = 0; node < 3; ++node) {
    for (std::uint32_t i = 0; i < map.owned(node); ++i) {
      EXPECT_EQ(map.receiver(map.chunk(node, i)), node);
    }
  }
  EXPECT_EQ(map.sent(0, 1), 0u);
}

TEST_F(OfEveryPlan, SharesComeDownwardsFromThatOfTheRankBefore) {
  const ChunkMap map = map_of(plan::kReduceScatter);
  // Chunk number `round * 4 + rank`. Of rank 1 the shares come in the order 0, 3, 2, 1.
  EXPECT_EQ(map.end_of_shares_down(1, 0), kElements);
  EXPECT_EQ(map.end_of_shares_down(1, 4), 2 * kElements);
  EXPECT_EQ(map.end_of_shares_down(1, 3), 3 * kElements);
  EXPECT_EQ(map.end_of_shares_down(1, 2 + 4), 6 * kElements);
  EXPECT_EQ(map.end_of_shares_down(1, 1 + 4), 8 * kElements) << "its own is last";
  // Of rank 0: 3, 2, 1, 0.
  EXPECT_EQ(map.end_of_shares_down(0, 3), kElements);
  EXPECT_EQ(map.end_of_shares_down(0, 0), 7 * kElements);
}

TEST_F(OfEveryPlan, UnequalSharesComeSoToo) {
  const std::uint64_t begins[] = {0, 40, 40, 100, 128};
  shm::Cut cut{.count = 128,
               .dtype = DType::f32,
               .chunk_bytes = kElements * sizeof(float),
               .nodes = 3,
               .lanes = 1};
  cut.shares = 4;
  cut.largest_share = 60;
  const ChunkMap map{
      plan::kReduceScatter, shm::make_sharding(cut), group_, {.share_begins = begins}};
  // Of rank 3: 2, 1, 0, 3.
  EXPECT_EQ(map.end_of_shares_down(3, 2), kElements);
  EXPECT_EQ(map.end_of_shares_down(3, 2 + 3 * 4), 60u) << "the last chunk of the share";
  EXPECT_EQ(map.end_of_shares_down(3, 0), 60 + kElements);
  EXPECT_EQ(map.end_of_shares_down(3, 3), 100 + kElements);
  // Of rank 0: 3, 2, 1, 0.
  EXPECT_EQ(map.end_of_shares_down(0, 3 + 4), 28u);
  EXPECT_EQ(map.end_of_shares_down(0, 0), 88 + kElements);
}

TEST_F(OfEveryPlan, AnAllGatherGoesFromTheRankOfTheShareToAll) {
  const ChunkMap map = map_of(plan::kAllGather);
  EXPECT_EQ(map.owned(0), 4u);
  EXPECT_EQ(map.sent(0, 2), 4u);
  EXPECT_EQ(map.receiver(map.chunk(1, 0)), ChunkMap::kEveryNode);
  EXPECT_EQ(map.begin(map.chunk(0, 2)), 4 * kElements) << "the share of rank 2";
}

TEST_F(OfEveryPlan, AGatherGoesFromTheRankOfTheShareToTheRoot) {
  const ChunkMap map = map_of(plan::kGather, 2);
  EXPECT_EQ(map.owned(0), 4u);
  EXPECT_EQ(map.sent(0, 2), 4u);
  EXPECT_EQ(map.sent(0, 1), 0u);
  EXPECT_EQ(map.receiver(map.chunk(0, 0)), 2u);
}

TEST_F(OfEveryPlan, AScatterGoesFromTheRootToTheRankOfTheShare) {
  const ChunkMap map = map_of(plan::kScatter, 2);
  EXPECT_EQ(map.owned(2), 8u);
  EXPECT_EQ(map.owned(0), 0u);
  EXPECT_EQ(map.sent(2, 0), 4u);
  EXPECT_EQ(map.sent(2, 1), 2u);
  EXPECT_EQ(map.sent(0, 1), 0u);
  EXPECT_EQ(map.receiver(map.chunk(2, 4)), 0u) << "the share of rank 2";
  EXPECT_EQ(map.receiver(map.chunk(2, 2)), 1u);
}

}  // namespace chunk_map_test
}  // namespace tern::collective
