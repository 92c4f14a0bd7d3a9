#include "rdma/peer_troubles.h"

#include <gtest/gtest.h>

namespace tern::rdma {
namespace peer_troubles_test {
namespace {

TEST(PeerTroubles, AreKeptUntilThereAreManyOfThem) {
  PeerTroubles troubles;
  EXPECT_EQ(troubles.find("one"), nullptr);
  troubles.of("one").text = "a cable";
  troubles.forget_old(1000, [](const std::string&) { return false; });
  ASSERT_NE(troubles.find("one"), nullptr);
  EXPECT_EQ(troubles.find("one")->text, "a cable");
}

TEST(PeerTroubles, OfPeersThatAreConnectedOrWaitAreNotForgotten) {
  PeerTroubles troubles;
  for (std::size_t i = 0; i < PeerTroubles::kMany; ++i) troubles.of(std::to_string(i));
  troubles.of("waits").retry_at_ns = 1001;
  troubles.forget_old(1000, [](const std::string& peer) { return peer == "7"; });
  EXPECT_EQ(troubles.size(), 2u);
  EXPECT_NE(troubles.find("waits"), nullptr);
  EXPECT_NE(troubles.find("7"), nullptr);
}

TEST(PeerTroubles, AnotherDeviceForgivesPathsAndKeepsTheRest) {
  PeerTroubles troubles;
  PeerTrouble& one = troubles.of("one");
  one.failures = 3;
  one.failovers = 2;
  troubles.forgive_paths();
  EXPECT_EQ(one.failures, 0u);
  EXPECT_EQ(one.failovers, 2u);
}

}  // namespace
}  // namespace peer_troubles_test
}  // namespace tern::rdma
