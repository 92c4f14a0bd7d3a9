#include "daemon/membership/member_group.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace member_group_test {

// Of two nodes, on the first, with ranks of two clients.
class MemberGroupTest : public testing::Test {
 protected:
  MemberGroupTest() {
    group.addresses = {"here:7000", "there:7000"};
    group.ranks_of_node = {{0, 2}, {1}};
    group.chunk_bytes = 256 << 10;
    group.ranks.resize(2);
    group.ranks[0].client = 11;
    group.ranks[1].client = 12;
  }
  MemberGroup group;
};

TEST_F(MemberGroupTest, NodesAreNamedByAddressAndRanks) {
  EXPECT_EQ(group.node_name(0), "node 0 (here:7000, ranks 0,2)");
  EXPECT_EQ(group.node_name(1), "node 1 (there:7000, ranks 1)");
}

TEST_F(MemberGroupTest, ARankIsItsClientsUntilItHasLeft) {
  ASSERT_EQ(group.rank_of_client(12), &group.ranks[1]);
  EXPECT_EQ(group.index_of(group.ranks[1]), 1u);
  EXPECT_EQ(group.bit_of(group.ranks[1]), 2u);
  EXPECT_EQ(group.rank_of_client(13), nullptr);
  group.ranks[1].phase = MemberRank::Phase::leaving;
  EXPECT_NE(group.rank_of_client(12), nullptr);
  group.ranks[1].phase = MemberRank::Phase::left;
  EXPECT_EQ(group.rank_of_client(12), nullptr);
}

TEST_F(MemberGroupTest, HasEndedWhileItIsRemovedToo) {
  for (const auto phase : {MemberGroup::Phase::starting, MemberGroup::Phase::running}) {
    group.phase = phase;
    EXPECT_FALSE(group.has_ended());
  }
  for (const auto phase : {MemberGroup::Phase::ended, MemberGroup::Phase::removing}) {
    group.phase = phase;
    EXPECT_TRUE(group.has_ended());
  }
}

TEST_F(MemberGroupTest, ChunksAreAsTheGroupsCutSays) {
  EXPECT_EQ(group.chunk_elements(1 << 20, DType::f32), 65'536u);
  group.cut = shm::CutVersion::even;
  EXPECT_EQ(group.chunk_elements(100'000, DType::f32), 53'248u);  // of 4,096 each, as few as reach
}

}  // namespace member_group_test
}  // namespace tern::daemon
