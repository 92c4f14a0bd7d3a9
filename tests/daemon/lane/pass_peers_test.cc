#include "daemon/lane/pass_peers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "group_rig.h"

namespace tern::daemon::pass_peers_test {
namespace {

using group_test::AllNodes;
using group_test::Node;
using group_test::OneNode;
using group_test::Shape;

Shape three_nodes(std::uint64_t known_features = ~std::uint64_t{0}) {
  return {.ranks = {{0, 1}, {2, 3}, {4}}, .known_features = known_features};
}

// Empty: it has none.
std::string objection_of(const PassPeers& peers) {
  char text[96];
  const char* const objection = peers.objection(text);
  return objection == nullptr ? "" : objection;
}
std::string objection_to_loss_at(const PassPeers& peers, std::uint32_t node) {
  char text[96];
  const char* const objection = peers.objection_to_loss(node, text);
  return objection == nullptr ? "" : objection;
}

// Node 1 of three, which hears what node 0 knows when that connects, and says itself to node 2.
class PassPeersTest : public AllNodes {
 protected:
  explicit PassPeersTest(const Shape& shape = three_nodes()) : AllNodes(shape) {}

  // Ranks that the node has heard of, that they have left.
  std::vector<std::uint64_t> departures(std::uint32_t at) {
    std::vector<std::uint64_t> ranks;
    for (const auto& header : node(at).frames_of(wire::FrameKind::rank_left)) {
      ranks.push_back(header.op_seq);
    }
    return ranks;
  }
  // The link to node 0 is over, and another begins.
  void renew_link() {
    node(1).core.peer(0).link->say_goodbye();
    peers.before_renewal(0);
    node(1).core.renew_peer(0);
    ASSERT_EQ(node(1).core.peer(0).link->state(), net::LinkState::connecting);
  }
  void open_new_link() {
    settle();
    node(0).core.renew_peer(1);
    settle_acks();
    ASSERT_EQ(node(1).core.peer(0).link->state(), net::LinkState::open);
  }

  PassPeers peers{node(1).core};
};

using Ranks = std::vector<std::uint64_t>;

// ---- What the others know

TEST_F(PassPeersTest, NodesThatKnowSendsAndLossyOnesTakePart) {
  EXPECT_EQ(objection_of(peers), "");
  for (std::uint32_t other = 0; other < 3; ++other) {
    EXPECT_EQ(objection_to_loss_at(peers, other), "") << other;
  }
}

class WithAnOldNode : public PassPeersTest {
 protected:
  WithAnOldNode() : PassPeersTest(three_nodes(0)) {}
};

TEST_F(WithAnOldNode, OneThatKnowsNoSendsIsNamed) {
  EXPECT_EQ(objection_of(peers),
            "the ternd of node 0 does not know send and recv: install this version there");
}

TEST_F(WithAnOldNode, ItIsNotToldWhoHasLeftAndTheOthersAre) {
  peers.add_departure(2);
  settle_acks();
  EXPECT_EQ(departures(0), Ranks{});
  EXPECT_EQ(departures(2), Ranks{2});
  EXPECT_TRUE(node(1).lost.empty());
}

class WithoutLossySends : public PassPeersTest {
 protected:
  WithoutLossySends() : PassPeersTest(three_nodes(wire::kFeatureSend)) {}

  const std::string kObjection =
      "the ternd of node 0 takes no recipes of sends: install this version there";
};

TEST_F(WithoutLossySends, OnlyWhatGoesToThatNodeIsObjectedTo) {
  EXPECT_EQ(objection_of(peers), "");
  EXPECT_EQ(objection_to_loss_at(peers, 0), kObjection);
  EXPECT_EQ(objection_to_loss_at(peers, 1), "") << "this node";
  EXPECT_EQ(objection_to_loss_at(peers, 2), "");
}

TEST_F(WithoutLossySends, WhatItDoesNotKnowIsKnownWhileItsLinkIsMadeAnew) {
  renew_link();
  EXPECT_EQ(objection_to_loss_at(peers, 0), kObjection);
  EXPECT_EQ(objection_of(peers), "");
}

TEST_F(PassPeersTest, WhatANodeKnowsIsKnownWhileItsLinkIsMadeAnew) {
  renew_link();
  EXPECT_EQ(objection_of(peers), "");
  EXPECT_EQ(objection_to_loss_at(peers, 0), "");
  // Even where the new one is lost before it has said hello.
  node(1).core.peer(0).link->say_goodbye();
  ASSERT_TRUE(node(1).core.peer(0).is_lost());
  EXPECT_EQ(objection_of(peers), "");
  EXPECT_EQ(objection_to_loss_at(peers, 0), "");
}

// Whose links have nobody at their other ends.
class Alone : public OneNode {
 protected:
  Alone() : OneNode(three_nodes()) {}

  PassPeers peers{node.core};
};

TEST_F(Alone, ANodeThatHasNotSaidHelloIsAskedNothing) {
  EXPECT_EQ(objection_of(peers), "");
  EXPECT_EQ(objection_to_loss_at(peers, 1), "");
}

TEST_F(Alone, WhoHasLeftIsSaidOnceThereIsAHello) {
  peers.add_departure(1);
  Node late(world, three_nodes(), 1);
  while (node.poll() + late.poll() != 0) {
  }
  EXPECT_TRUE(late.frames_of(wire::FrameKind::rank_left).empty());
  peers.tell_departures();
  peers.tell_departures();
  while (node.poll() + late.poll() != 0) {
  }
  EXPECT_EQ(late.frames_of(wire::FrameKind::rank_left).size(), 1u);
}

// ---- Who has left

TEST_F(PassPeersTest, EveryOtherNodeHearsOnceOfEachRankThatHasLeft) {
  peers.add_departure(3);
  settle();
  EXPECT_EQ(departures(0), Ranks{3});
  EXPECT_EQ(departures(2), Ranks{3});
  const auto frames = node(0).frames_of(wire::FrameKind::rank_left);
  EXPECT_EQ(frames[0].group, node(1).core.setup().token);
  EXPECT_EQ(frames[0].epoch, node(1).core.setup().epoch);
  EXPECT_EQ(frames[0].source_node, 1u);
  EXPECT_EQ(frames[0].payload_bytes, 0u);
  peers.tell_departures();
  peers.add_departure(2);
  peers.tell_departures();
  settle();
  EXPECT_EQ(departures(0), (Ranks{3, 2}));
  EXPECT_EQ(departures(2), (Ranks{3, 2}));
}

TEST_F(PassPeersTest, ALinkThatIsLostCarriesNothingAndKeepsNobodyWaiting) {
  node(1).core.peer(0).link->say_goodbye();
  ASSERT_TRUE(node(1).core.peer(0).is_lost());
  peers.add_departure(2);
  settle();
  EXPECT_EQ(departures(0), Ranks{});
  EXPECT_EQ(departures(2), Ranks{2});
}

TEST_F(PassPeersTest, OnALinkThatTakesAnothersPlaceAllIsSaidAgain) {
  peers.add_departure(2);
  settle();
  ASSERT_EQ(departures(0), Ranks{2});
  renew_link();
  peers.tell_departures();
  open_new_link();
  EXPECT_EQ(departures(0), Ranks{2}) << "it had said no hello";
  peers.tell_departures();
  peers.tell_departures();
  settle();
  EXPECT_EQ(departures(0), (Ranks{2, 2}));
  EXPECT_EQ(departures(2), Ranks{2}) << "its link is the old one";
}

TEST_F(PassPeersTest, WhoLeavesWhileALinkIsMadeAnewIsToldOfLater) {
  renew_link();
  peers.add_departure(2);
  settle();
  EXPECT_EQ(departures(2), Ranks{2});
  open_new_link();
  EXPECT_EQ(departures(0), Ranks{});
  peers.tell_departures();
  settle();
  EXPECT_EQ(departures(0), Ranks{2});
  EXPECT_EQ(departures(2), Ranks{2});
}

}  // namespace
}  // namespace tern::daemon::pass_peers_test
