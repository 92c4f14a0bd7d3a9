#include "daemon/lane/lane_links.h"

#include <gtest/gtest.h>

#include <cstring>

#include "group_rig.h"

namespace tern::daemon::lane_links_test {
namespace {

using group_test::endpoint_of;
using group_test::id_of;
using group_test::kMillisecond;
using group_test::kSecond;
using group_test::World;

struct Loss {
  std::uint64_t group = 0;
  Errc reason = Errc::ok;
  bool superseded = false;
};

// The lane of a daemon, with nothing but its links.
struct End final : FrameSink, net::AcceptorSink {
  End(World& world, std::uint32_t self, std::uint64_t start = 0)
      : transport(world.network, endpoint_of(self)),
        resources(group_test::small_lane(), {world.clock, transport}),
        links(std::make_unique<LaneLinks>(resources, transport,
                                          wire::NodeId{self + 1, self + 1 + start}, *this)),
        acceptor(world.network, world.clock, {endpoint_of(self), {}}, *this) {}

  LanePeer& peer(std::uint32_t node, std::uint64_t group) {
    return links->peer(id_of(node), group, endpoint_of(node));
  }
  net::LinkState state(std::uint32_t node, std::uint64_t group) {
    for (const auto& one : links->all()) {
      if (one->id == id_of(node) && one->group == group && one->can_serve()) {
        return one->link->state();
      }
    }
    return net::LinkState::lost;
  }
  std::vector<std::string> refusals() {
    std::vector<std::string> texts;
    for (Event event; resources.reports.ring().pop(event);) {
      if (const auto* const what = std::get_if<event::PeerRefused>(&event.what)) {
        texts.emplace_back(what->text.c_str());
      }
    }
    return texts;
  }
  int poll() { return acceptor.poll() + transport.poll() + links->tick(resources.clock.now_ns()); }

  bool place_frame(LanePeer& from, const wire::FrameHeader& header,
                   net::PayloadPlace& place) override {
    if (refuse_headers) return false;
    place.body = std::span(from.small).first(header.payload_bytes);
    return true;
  }
  bool take_frame(LanePeer& from, const wire::FrameHeader& header, const ReceivedPayload& payload,
                  bool& known) override {
    known = knows_groups;
    taken.emplace_back(from.group, header.tensor);
    EXPECT_TRUE(payload.valid);
    return !refuse_frames;
  }
  void abandon_frame(LanePeer&) override { ++abandoned; }
  void on_link_lost(LanePeer& of, Errc reason, const char*, bool superseded) override {
    losses.push_back({of.group, reason, superseded});
  }
  void on_incoming(std::unique_ptr<net::Incoming> incoming, const wire::FrameHeader&,
                   const wire::HelloBody& hello) override {
    links->adopt({incoming.release(), hello});
  }
  void on_refused(const std::string&, Errc, const char*) override {}

  bool refuse_headers = false, refuse_frames = false, knows_groups = true;
  int abandoned = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;  // group of the link, tensor
  std::vector<Loss> losses;
  net::LoopbackTransport transport;
  LaneResources resources;
  std::unique_ptr<LaneLinks> links;
  net::LoopbackAcceptor acceptor;
};

// Node 0 connects, since its id is the lower one.
class LaneLinksTest : public ::testing::Test {
 protected:
  void settle() {
    while ((low ? low->poll() : 0) + high->poll() != 0) {
    }
  }
  void pass(std::uint64_t ns) {
    for (std::uint64_t passed = 0; passed < ns; passed += 500 * kMillisecond) {
      world.clock.advance_ns(500 * kMillisecond);
      settle();  // or the links would die of silence
    }
  }
  // Both have a group for it.
  void connect(std::uint64_t group) {
    ++low->peer(1, group).groups;
    ++high->peer(0, group).groups;
    settle();
  }
  void send(std::uint64_t group, std::uint64_t tensor) {
    wire::FrameHeader header;
    header.kind = static_cast<std::uint8_t>(wire::FrameKind::announce);
    header.tensor = tensor;
    const std::vector<std::byte> payload(10, std::byte{3});
    low->peer(1, group).link->send_copy(header, payload);
    settle();
  }

  World world;
  std::unique_ptr<End> low = std::make_unique<End>(world, 0);
  std::unique_ptr<End> high = std::make_unique<End>(world, 1);
};

TEST_F(LaneLinksTest, EveryGroupHasALinkOfItsOwnToANode) {
  LanePeer& first = low->peer(1, 7);
  LanePeer& second = low->peer(1, 8);
  EXPECT_NE(&first, &second);
  EXPECT_EQ(&first, &low->peer(1, 7));
  connect(7);
  connect(8);
  EXPECT_EQ(low->state(1, 7), net::LinkState::open);
  EXPECT_EQ(high->state(0, 8), net::LinkState::open);
  send(8, 100);
  EXPECT_EQ(high->taken, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{8, 100}}));
}

TEST_F(LaneLinksTest, WhatAPeerDoesNotAcknowledgeHasABound) {
  connect(7);
  connect(8);
  LanePeer& silent = low->peer(1, 7);
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(wire::FrameKind::announce);
  const std::vector<std::byte> payload(1000, std::byte{3});
  // Nobody polls: nothing is acknowledged.
  int sent = 0;
  while (silent.can_serve() && sent < 100'000) {
    silent.link->send_copy(header, payload);
    low->links->settle(world.clock.now_ns());
    ++sent;
  }
  EXPECT_FALSE(silent.can_serve());
  EXPECT_GT(sent, 10'000) << "a thousand ops that fail at once are no reason";
  ASSERT_EQ(low->losses.size(), 1u);
  EXPECT_EQ(low->losses[0].group, 7u);
  EXPECT_EQ(low->losses[0].reason, Errc::peer_lost);
  EXPECT_EQ(low->state(1, 8), net::LinkState::open);
}

// One has many links of which each holds little, and another one link that holds more.
TEST_F(LaneLinksTest, OfAllLinksOneOfTheUserWhoseLinksHoldMostGivesWay) {
  constexpr std::uint64_t kLinks = 10;
  const auto hold = [&](std::uint64_t group, std::uint32_t account, std::uint64_t bytes) {
    LanePeer& peer = low->peer(1, group);
    peer.account = account;
    peer.may_hold_bytes = LaneLinks::kMostHeldBytes;
    wire::FrameHeader header;
    header.kind = static_cast<std::uint8_t>(wire::FrameKind::announce);
    const std::vector<std::byte> payload(1 << 20, std::byte{3});
    while (peer.link->held_bytes() < bytes) peer.link->send_copy(header, payload);
  };
  for (std::uint64_t group = 0; group <= kLinks; ++group) connect(7 + group);
  hold(7, 1, LaneLinks::kMostHeldBytes / 3);
  for (std::uint64_t group = 1; group < kLinks; ++group) {
    hold(7 + group, 2, LaneLinks::kMostHeldBytes / 15);
  }
  low->links->settle(world.clock.now_ns());
  EXPECT_TRUE(low->losses.empty());
  hold(7 + kLinks, 2, LaneLinks::kMostHeldBytes / 7);
  low->links->settle(world.clock.now_ns());
  ASSERT_EQ(low->losses.size(), 1u);
  EXPECT_EQ(low->losses[0].group, 7 + kLinks);
}

TEST_F(LaneLinksTest, ALinkThatNobodyAskedForWaitsForItsGroup) {
  ++low->peer(1, 7).groups;
  settle();
  ASSERT_EQ(high->links->all().size(), 1u);
  LanePeer* const adopted = high->links->all()[0].get();
  EXPECT_EQ(adopted->link->state(), net::LinkState::open);
  EXPECT_EQ(&high->peer(0, 7), adopted);
}

TEST_F(LaneLinksTest, TooManyThatNobodyAskedForAreTurnedAway) {
  constexpr std::uint64_t kMost = 32;  // of one source
  for (std::uint64_t group = 0; group <= kMost; ++group) ++low->peer(1, group).groups;
  settle();
  EXPECT_EQ(high->links->all().size(), kMost);
  EXPECT_EQ(high->resources.counters->links_turned_away.load(), 1u);
  EXPECT_EQ(high->refusals(),
            std::vector<std::string>{"its link was turned away: too many wait for a group"});
  // One that is used now makes room, and the other one comes again.
  std::uint64_t turned_away = 0;
  for (std::uint64_t group = 0; group <= kMost; ++group) {
    if (high->state(0, group) != net::LinkState::open) turned_away = group;
  }
  ++high->peer(0, turned_away == 0 ? 1 : 0).groups;
  pass(kSecond);
  EXPECT_EQ(high->state(0, turned_away), net::LinkState::open);
}

TEST_F(LaneLinksTest, ALinkThatNoEpochUsesEndsAfterTenSeconds) {
  connect(7);
  connect(8);
  low->links->settle(world.clock.now_ns());
  --low->peer(1, 7).groups;
  EXPECT_EQ(low->links->settle(world.clock.now_ns()), 0);
  pass(9 * kSecond);
  EXPECT_EQ(low->links->settle(world.clock.now_ns()), 0);
  EXPECT_EQ(low->state(1, 7), net::LinkState::open);
  pass(kSecond);
  EXPECT_EQ(low->links->settle(world.clock.now_ns()), 1);
  settle();
  EXPECT_EQ(low->links->all().size(), 1u);  // it is forgotten
  EXPECT_EQ(low->state(1, 8), net::LinkState::open);
  ASSERT_EQ(high->losses.size(), 1u);
  EXPECT_EQ(high->losses[0].group, 7u);
  EXPECT_TRUE(high->losses[0].superseded);  // no failure of the node
}

TEST_F(LaneLinksTest, ALinkThatIsUsedAgainInTimeStays) {
  connect(7);
  --low->peer(1, 7).groups;
  low->links->settle(world.clock.now_ns());
  pass(9 * kSecond);
  ++low->peer(1, 7).groups;
  low->links->settle(world.clock.now_ns());
  --low->peer(1, 7).groups;
  low->links->settle(world.clock.now_ns());
  pass(9 * kSecond);
  low->links->settle(world.clock.now_ns());
  EXPECT_EQ(low->state(1, 7), net::LinkState::open);
}

TEST_F(LaneLinksTest, AGoodbyeEndsAllLinksOnBothSides) {
  connect(7);
  connect(8);
  low->links->say_goodbye();
  settle();
  ASSERT_EQ(low->losses.size(), 2u);
  ASSERT_EQ(high->losses.size(), 2u);
  for (const std::size_t i : {0u, 1u}) {
    EXPECT_EQ(low->losses[i].reason, Errc::shutting_down);
    EXPECT_EQ(high->losses[i].reason, Errc::peer_lost);
    EXPECT_TRUE(high->losses[i].superseded);
  }
  EXPECT_EQ(high->resources.counters->links_lost.load(), 2u);
}

TEST_F(LaneLinksTest, ALostLinkIsForgottenWhenNoGroupUsesItAndMadeAnew) {
  connect(7);
  LanePeer* const before = &low->peer(1, 7);
  low->links->say_goodbye();
  low->links->settle(world.clock.now_ns());
  EXPECT_EQ(low->links->all().size(), 1u);  // its group still refers to it
  EXPECT_NE(&low->peer(1, 7), before);
  --before->groups;
  low->links->settle(world.clock.now_ns());
  EXPECT_EQ(low->links->all().size(), 1u);
}

TEST_F(LaneLinksTest, ASessionThatWasGivenUpIsSupersededByTheNext) {
  connect(7);
  LanePeer* const old = &high->peer(0, 7);
  // Without a goodbye: it goes on trying to resume while the other side has begun anew.
  low->links = std::make_unique<LaneLinks>(low->resources, low->transport, id_of(0), *low);
  ++low->peer(1, 7).groups;
  settle();
  ASSERT_EQ(high->losses.size(), 1u);
  EXPECT_EQ(high->losses[0].reason, Errc::peer_lost);
  EXPECT_TRUE(high->losses[0].superseded);
  EXPECT_FALSE(old->can_serve());
  EXPECT_NE(&high->peer(0, 7), old);
  EXPECT_EQ(high->state(0, 7), net::LinkState::open);
  EXPECT_EQ(low->state(1, 7), net::LinkState::open);
}

TEST_F(LaneLinksTest, APeerThatIsGoneIsNotSuperseded) {
  connect(7);
  low.reset();
  world.network.kill(endpoint_of(0));
  pass(10 * kSecond);
  ASSERT_EQ(high->losses.size(), 1u);
  EXPECT_FALSE(high->losses[0].superseded);
  EXPECT_EQ(high->resources.counters->links_lost.load(), 1u);
}

TEST_F(LaneLinksTest, AFrameThatBreaksTheProtocolEndsTheLink) {
  connect(7);
  connect(8);
  high->refuse_headers = true;
  send(7, 1);
  high->refuse_headers = false;
  high->refuse_frames = true;
  send(8, 1);
  EXPECT_EQ(high->abandoned, 1);  // what was never placed
  EXPECT_EQ(high->taken.size(), 1u);
  ASSERT_EQ(high->losses.size(), 2u);
  for (const Loss& loss : high->losses) {
    EXPECT_EQ(loss.reason, Errc::protocol_error);
    EXPECT_FALSE(loss.superseded);
  }
  EXPECT_EQ(high->resources.counters->bad_frames.load(), 2u);
  EXPECT_EQ(high->refusals().size(), 2u);
}

TEST_F(LaneLinksTest, FramesOfUnknownGroupsAreReportedOnceAndOnlyBeforeAnyWasKnown) {
  connect(7);
  connect(8);
  high->links->settle(world.clock.now_ns());  // both have served a group
  ++low->peer(1, 9).groups;
  settle();
  high->knows_groups = false;
  send(7, 1);
  EXPECT_TRUE(high->refusals().empty());  // late frames of an epoch
  send(9, 1);
  send(9, 2);
  EXPECT_EQ(high->refusals(),
            std::vector<std::string>{"it sends frames of a group that is not known here"});
  EXPECT_TRUE(high->losses.empty());
}

TEST_F(LaneLinksTest, WhoConnectsUnaskedFromAHigherIdIsReplacedOnceItsAddressIsKnown) {
  ++high->peer(0, 7).groups;  // waits: the lower one connects
  LanePeer& unaddressed = low->links->peer(id_of(1), 7, {});
  EXPECT_EQ(unaddressed.phase, LanePeer::Phase::stranger);
  LanePeer& made = low->peer(1, 7);
  EXPECT_NE(&made, &unaddressed);
  EXPECT_EQ(unaddressed.phase, LanePeer::Phase::lost);
  settle();
  EXPECT_EQ(made.link->state(), net::LinkState::open);
}

TEST_F(LaneLinksTest, PublishesWhatIsKnownOfEachLink) {
  connect(7);
  ++low->peer(1, 8).groups;
  send(7, 1);
  world.network.kill(endpoint_of(1));
  EXPECT_TRUE(low->links->peers().empty());
  low->links->publish();
  const auto rows = low->links->peers();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].id, id_of(1));
  EXPECT_EQ(rows[0].group, 7u);
  EXPECT_EQ(rows[0].state, net::LinkState::open);
  EXPECT_EQ(rows[0].stats.frames_sent, 1u);
  EXPECT_EQ(rows[0].stats.bytes_sent, 10u);
  EXPECT_EQ(rows[0].unacked_frames, 1u);
  EXPECT_EQ(rows[1].group, 8u);
}

TEST_F(LaneLinksTest, PublishesThoseFirstThatDoNotRun) {
  connect(7);
  for (std::size_t i = 0; i < LaneLinks::kSnapshots; ++i) ++low->peer(1, 100 + i).groups;
  low->links->publish();
  const auto rows = low->links->peers();
  ASSERT_EQ(rows.size(), LaneLinks::kSnapshots);
  for (const PeerSnapshot& row : rows) EXPECT_NE(row.state, net::LinkState::open) << row.group;
}

TEST_F(LaneLinksTest, SleepsNoLongerThanItsFirstLinkMay) {
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  EXPECT_EQ(low->links->next_deadline_ns(kNever), kNever);
  connect(7);
  const std::uint64_t first = low->links->next_deadline_ns(kNever);
  EXPECT_EQ(first, low->peer(1, 7).link->next_deadline_ns());
  EXPECT_EQ(low->links->next_deadline_ns(first - 1), first - 1);
  low->links->say_goodbye();
  EXPECT_EQ(low->links->next_deadline_ns(kNever), kNever);  // a lost link wants nothing
}

}  // namespace
}  // namespace tern::daemon::lane_links_test
