#include "collective/group_shape.h"

#include <gtest/gtest.h>

namespace tern::collective {
namespace {

TEST(GroupShape, CountsItsRanksAndKnowsWhereTheyAre) {
  GroupShape shape;
  shape.node = 2;
  shape.ranks = {{0, 3}, {1}, {2, 4, 6}};
  EXPECT_EQ(shape.nodes(), 3u);
  EXPECT_EQ(shape.group_size(), 6u);
  EXPECT_EQ(shape.largest_node(), 3u);
  EXPECT_EQ(shape.local_ranks(), 3u);
  EXPECT_EQ(shape.node_of_rank(3), 0u);
  EXPECT_EQ(shape.node_of_rank(1), 1u);
  EXPECT_EQ(shape.node_of_rank(6), 2u);
  EXPECT_EQ(shape.node_of_rank(5), kNoSlot);
}

TEST(GroupShape, OneLaneOfAllCountsAnOp) {
  for (std::uint64_t tensor = 0; tensor < 8; ++tensor) {
    for (std::uint64_t sequence = 0; sequence < 8; ++sequence) {
      int counting = 0;
      for (std::uint32_t lane = 0; lane < 3; ++lane) {
        GroupShape shape;
        shape.lane = lane;
        shape.lanes = 3;
        counting += shape.counts(tensor, sequence) ? 1 : 0;
      }
      EXPECT_EQ(counting, 1) << tensor << ", " << sequence;
    }
  }
}

// What is agreed is what a node may send in all; a few packets to each go all the same.
TEST(EagerLimit, IsSharedAmongTheOtherNodesDownToAFewPackets) {
  EXPECT_EQ(eager_limit(64 << 10, 1), 64u << 10);
  EXPECT_EQ(eager_limit(64 << 10, 2), 64u << 10);
  EXPECT_EQ(eager_limit(64 << 10, 3), 32u << 10);
  EXPECT_EQ(eager_limit(64 << 10, 5), 16u << 10);
  EXPECT_EQ(eager_limit(64 << 10, 64), 8u << 10);
  EXPECT_EQ(eager_limit(4 << 10, 64), 4u << 10) << "never more than what is agreed";
  EXPECT_EQ(eager_limit(0, 2), 0u);
}

TEST(ChunksFit, WhereEachNodeOwnsOneThatTheAnnouncementHasRoomFor) {
  constexpr std::uint64_t kRoom = 1024;
  EXPECT_TRUE(chunks_fit({512, 256, 4}, kRoom, 2));
  EXPECT_FALSE(chunks_fit({513, 256, 4}, kRoom, 2)) << "a node would own two";
  EXPECT_TRUE(chunks_fit({513, 256, 4}, kRoom, 3));
  EXPECT_FALSE(chunks_fit({512, 257, 4}, kRoom, 2)) << "a chunk does not fit";
  EXPECT_FALSE(chunks_fit({1, 1, 4}, kRoom, 1)) << "there is nobody to send to";
}

TEST(ContributionWindow, IsTwoMebibytesToAllOthersAndTwoChunksToEachAtLeast) {
  EXPECT_EQ(contribution_window(256 << 10, 2), 0xffffffffu);
  EXPECT_EQ(contribution_window(256 << 10, 3), 4u);
  EXPECT_EQ(contribution_window(256 << 10, 5), 2u);
  EXPECT_EQ(contribution_window(256 << 10, 64), 2u);
  EXPECT_EQ(contribution_window(16 << 10, 3), 64u);
}

}  // namespace
}  // namespace tern::collective
