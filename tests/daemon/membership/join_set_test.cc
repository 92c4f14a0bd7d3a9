#include "daemon/membership/join_set.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

JoiningRank joining(std::uint32_t user, const char* nonce, std::uint64_t since_ns) {
  JoiningRank rank;
  rank.user = user;
  rank.nonce = nonce;
  rank.since_ns = since_ns;
  return rank;
}

TEST(JoinSet, ARankWaitsByTheNonceOfItsLastJoin) {
  JoinSet set;
  set.ranks[3] = joining(1000, "a", 10);
  EXPECT_TRUE(set.waits(3, "a"));
  EXPECT_FALSE(set.waits(2, "a"));
  set.ranks[3] = joining(1000, "b", 20);
  EXPECT_FALSE(set.waits(3, "a")) << "that join has been given up for a later one";
  EXPECT_TRUE(set.waits(3, "b"));
}

TEST(JoinSet, IsAsOldAsTheFirstThatWaits) {
  JoinSet set;
  set.ranks[0] = joining(1000, "a", 30);
  set.ranks[1] = joining(1000, "b", 10);
  set.ranks[2] = joining(1000, "c", 20);
  EXPECT_EQ(set.since_ns(), 10u);
  set.ranks.erase(1);
  EXPECT_EQ(set.since_ns(), 20u);
}

TEST(JoinSet, HasTheUsersOfItsRanks) {
  JoinSet set;
  EXPECT_TRUE(set.users().empty());
  set.ranks[0] = joining(1000, "a", 1);
  set.ranks[5] = joining(1001, "b", 1);
  EXPECT_EQ(set.users(), (std::vector<std::uint32_t>{1000, 1001}));
}

}  // namespace
}  // namespace tern::daemon
