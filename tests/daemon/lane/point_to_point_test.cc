#include "daemon/lane/point_to_point.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "daemon/lane/entry_check.h"
#include "passing_rig.h"

namespace tern::daemon::point_to_point_test {
namespace {

TEST_F(OfNode0, WhatComesWithAnOfferWaitsForItsRecv) {
  ASSERT_TRUE(arrive(header(FrameKind::send_offer), offer_payload(40)));
  run();
  EXPECT_EQ(heard(FrameKind::send_end), 0u);
  const std::uint64_t ticket = rank.submit(plan::kRecv, 1, 50, 128);
  run();
  expect_end(ticket, Errc::ok);
  EXPECT_EQ(rank.arena()[128 + 39], std::byte{0x33});
  EXPECT_EQ(rank.arena()[128 + 40], std::byte{0});
  EXPECT_EQ(heard(FrameKind::send_end), 1u);
  EXPECT_TRUE(passing.mailbox().idle());
  EXPECT_EQ(node(0).resources.clients.find(1)->uses, 0u);
}

TEST_F(OfNode0, PiecesGoStraightToTheArena) {
  const std::uint64_t ticket = rank.submit(plan::kRecv, 1, 1000, 64);
  ASSERT_TRUE(arrive(header(FrameKind::send_offer), offer_payload(1000, false)));
  run();
  ASSERT_EQ(heard(FrameKind::send_accept), 1u);
  ASSERT_TRUE(arrive(header(FrameKind::send_piece), std::vector(600, std::byte{1})));
  ASSERT_TRUE(arrive(header(FrameKind::send_piece), std::vector(400, std::byte{2})));
  run();
  expect_end(ticket, Errc::ok);
  EXPECT_EQ(rank.arena()[64 + 599], std::byte{1});
  EXPECT_EQ(rank.arena()[64 + 600], std::byte{2});
  EXPECT_EQ(rank.arena()[64 + 999], std::byte{2});
}

TEST_F(OfNode0, ASendGivesItsMemoryBackWhenAllPiecesHaveArrived) {
  const std::uint64_t ticket = rank.submit(plan::kSend, 1, 3000);
  std::memset(rank.arena(), 5, 3000);
  run();
  ASSERT_EQ(heard(FrameKind::send_offer), 1u);
  EXPECT_TRUE(arrive(header(FrameKind::send_accept), {}));
  run();
  EXPECT_EQ(heard(FrameKind::send_piece), 3u) << "of a chunk each";
  EXPECT_FALSE(rank.client.next_completion().has_value());
  EXPECT_TRUE(arrive(header(FrameKind::send_end), {}));
  run();
  expect_end(ticket, Errc::ok);
  node(0).expect_all_memory_is_free();
}

TEST_F(OfNode0, WhatMakesNoSenseEndsTheLink) {
  const auto refused = [&](FrameKind kind, const std::vector<std::byte>& payload,
                           std::uint64_t number = 0) {
    EXPECT_FALSE(arrive(header(kind, number), payload)) << static_cast<int>(kind);
  };
  refused(FrameKind::send_offer, {});
  refused(FrameKind::send_offer, offer_payload(kEager + 1));
  refused(FrameKind::send_offer, offer_payload(10), plan::kMaxPassing);
  refused(FrameKind::send_offer, offer_payload(10), ~std::uint64_t{0});
  const auto offer_with = [&](auto change) {
    auto payload = offer_payload(10);
    wire::SendOfferBody body;
    std::memcpy(&body, payload.data(), sizeof(body));
    change(body);
    std::memcpy(payload.data(), &body, sizeof(body));
    return payload;
  };
  refused(FrameKind::send_offer, offer_with([](auto& body) { body.count = 11; }));
  refused(FrameKind::send_offer, offer_with([](auto& body) { body.count = 9; }));
  refused(FrameKind::send_offer, offer_with([](auto& body) { body.count = ~std::uint64_t{0}; }));
  refused(FrameKind::send_offer, offer_with([](auto& body) { body.eager = 0; }));
  refused(FrameKind::send_offer, offer_with([](auto& body) { body.eager = 2; }));
  refused(FrameKind::send_offer, offer_with([](auto& body) { body.dtype = 99; }));
  refused(FrameKind::send_offer, offer_with([](auto& body) { body.reserved[4] = 1; }));
  refused(FrameKind::send_offer, offer_with([](auto& body) { body.lossy = 2; }));
  refused(FrameKind::send_offer, offer_with([](auto& body) { body.lossy = 1; }));  // of bytes
  refused(FrameKind::send_accept, std::vector(1, std::byte{}));
  refused(FrameKind::send_accept, {});
  refused(FrameKind::send_end, {});
  refused(FrameKind::send_end, std::vector(8, std::byte{}));
  refused(FrameKind::send_end, failure_payload(9));
  refused(FrameKind::send_withdraw, {});
  refused(FrameKind::rank_left, {}, 0);
  refused(FrameKind::rank_left, {}, 2);
  ASSERT_TRUE(arrive(header(FrameKind::send_offer), offer_payload(1000, false)));
  refused(FrameKind::send_offer, offer_payload(10));
  refused(FrameKind::send_piece, std::vector(10, std::byte{}));
  refused(FrameKind::send_withdraw, failure_payload(0));
  refused(FrameKind::send_withdraw, failure_payload(1000));
  rank.submit(plan::kRecv, 1, 1000);
  run();
  refused(FrameKind::send_piece, {});
  refused(FrameKind::send_piece, std::vector(1001, std::byte{}));
  ASSERT_TRUE(arrive(header(FrameKind::send_piece), std::vector(1000, std::byte{9})));
  run();
  expect_end(1, Errc::ok);
  EXPECT_TRUE(arrive(header(FrameKind::send_piece), std::vector(10, std::byte{})))
      << "late, and thrown away";
}

// What they bring would have to be kept: the reserve is full, and nothing of it is lost.
TEST_F(OfNode0, TooManyOffersWithElementsEndTheLink) {
  for (std::uint32_t i = 0; i < Mailbox::kEagerReserve; ++i) {
    ASSERT_TRUE(arrive(header(FrameKind::send_offer, i), offer_payload(8)));
  }
  EXPECT_FALSE(arrive(header(FrameKind::send_offer, 100), offer_payload(8)));
  EXPECT_TRUE(arrive(header(FrameKind::send_offer, 101), offer_payload(1000, false)));
  EXPECT_TRUE(arrive(header(FrameKind::send_offer, 102), offer_payload(0)));
  for (std::uint32_t i = 0; i < Mailbox::kEagerReserve; ++i) {
    const std::uint64_t ticket = rank.submit(plan::kRecv, 1, 8);
    run();
    expect_end(ticket, Errc::ok);
  }
  EXPECT_TRUE(arrive(header(FrameKind::send_offer, 100), offer_payload(8)));
}

TEST_F(OfNode0, AConnectionThatBreaksInsideAFrameCostsNothing) {
  for (int round = 0; round < 100; ++round) {
    net::PayloadPlace at;
    wire::FrameHeader offer = header(FrameKind::send_offer);
    ASSERT_TRUE(place(offer, sizeof(wire::SendOfferBody) + 8, at));
    passing.on_abandoned(1, filled<filling::OfferSlab>());
  }
  const std::uint64_t ticket = rank.submit(plan::kRecv, 1, 1000);
  ASSERT_TRUE(arrive(header(FrameKind::send_offer), offer_payload(1000, false)));
  run();
  net::PayloadPlace at;
  wire::FrameHeader piece = header(FrameKind::send_piece);
  ASSERT_TRUE(place(piece, 1000, at));
  passing.cancel(*node(0).resources.clients.find(1), ticket, {Errc::cancelled, 0, "cancelled"});
  run();
  EXPECT_FALSE(rank.client.next_completion().has_value()) << "the frame still fills its memory";
  passing.on_abandoned(1, filled<filling::Piece>());
  run();
  expect_end(ticket, Errc::cancelled, "cancelled");
}

TEST_F(OfNode0, ADamagedFrameFailsItsSendAndNoOther) {
  const std::string damage = "a payload from node 1 did not match its checksum";
  const std::uint64_t first = rank.submit(plan::kRecv, 1, 1000);
  EXPECT_TRUE(arrive(header(FrameKind::send_offer), offer_payload(8), true));
  run();
  expect_end(first, Errc::corrupt_data, damage);
  const std::uint64_t second = rank.submit(plan::kRecv, 1, 1000);
  ASSERT_TRUE(arrive(header(FrameKind::send_offer), offer_payload(1000, false)));
  run();
  EXPECT_TRUE(arrive(header(FrameKind::send_piece), std::vector(10, std::byte{}), true));
  run();
  expect_end(second, Errc::corrupt_data, damage);
  const std::uint64_t third = rank.submit(plan::kSend, 1, 8);
  run();
  EXPECT_TRUE(arrive(header(FrameKind::send_end), failure_payload(9), true));
  run();
  expect_end(third, Errc::corrupt_data, damage);
  EXPECT_EQ(heard(FrameKind::send_end), 2u) << "with why";
  EXPECT_TRUE(passing.mailbox().idle());
}

TEST_F(OfNode0, TheTextOfAFailureIsForeign) {
  const std::uint64_t ticket = rank.submit(plan::kSend, 1, 8);
  run();
  EXPECT_TRUE(arrive(header(FrameKind::send_end), failure_payload(9)));
  run();
  expect_end(ticket, Errc::mismatch, std::string(183, 'x'));
}

TEST_F(OfNode0, AfterTheEndNothingIsSentAndNothingStays) {
  ASSERT_TRUE(arrive(header(FrameKind::send_offer), offer_payload(8)));
  const std::uint64_t ticket = rank.submit(plan::kSend, 1, 1000);
  run();
  node(0).core.ops().end(Errc::peer_lost, "lost node 1");
  passing.end(Errc::peer_lost, "lost node 1");
  run();
  expect_end(ticket, Errc::peer_lost, "send to rank 1, tag 7: lost node 1");
  EXPECT_EQ(heard(FrameKind::send_end) + heard(FrameKind::send_withdraw), 0u);
  EXPECT_TRUE(passing.mailbox().idle());
  EXPECT_FALSE(passing.uses_rank(0));
}

TEST_F(OfNode0, ARecordNamesTheOtherRankAndTheTag) {
  rank.submit(plan::kRecv, shm::kAnySource, 100);
  ASSERT_TRUE(arrive(header(FrameKind::send_offer), offer_payload(40)));
  run();
  const auto ended = node(0).events<event::OpEnded>();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].record.kind, plan::kRecv.number);
  EXPECT_EQ(ended[0].record.peer, 1u) << "who it was";
  EXPECT_EQ(ended[0].record.sequence, 7u);
  EXPECT_EQ(ended[0].record.count, 40u);
  EXPECT_EQ(node(0).resources.counters->ops_completed.load(), 1u);
}

// What a hostile node leaves lying: it acknowledges every frame, and does not say how it ends.
TEST_F(OfNode0, ANodeThatNeverEndsASendLosesItsLink) {
  const std::uint64_t ticket = rank.submit(plan::kSend, 1, 3000);
  run();
  EXPECT_TRUE(arrive(header(FrameKind::send_accept), {}));
  run();
  passing.cancel(*node(0).resources.clients.find(1), ticket, {Errc::cancelled, 0, "cancelled"});
  run();
  ASSERT_EQ(heard(FrameKind::send_withdraw), 1u);
  const std::uint64_t now = world.clock.now_ns();
  passing.expire(now);
  passing.expire(now + Mailbox::kLastWordNs - 1);
  EXPECT_TRUE(node(0).lost.empty());
  passing.expire(now + Mailbox::kLastWordNs);
  ASSERT_EQ(node(0).lost, std::vector<std::uint32_t>{1});
  node(0).core.ops().end(Errc::peer_lost, "lost node 1");
  passing.end(Errc::peer_lost, "lost node 1");
  run();
  expect_end(ticket, Errc::cancelled, "cancelled");
  EXPECT_TRUE(passing.mailbox().idle());
  node(0).expect_all_memory_is_free();
}

// The time that copies take is the lane's turn, and its end their end.
TEST_F(OfNode0, StepsEndWithTheTurnOfTheLane) {
  rank.submit(plan::kSend, 0, 20'000);
  rank.submit(plan::kRecv, 0, 20'000);
  EXPECT_EQ(passing.run(3, [] { return 8u; }), 3) << "so many steps, and no more";
  node(0).resources.codec.spent.charge(CodecRoom::Spent::kChunksNs);
  EXPECT_EQ(rank.run(), 0);
  node(0).resources.codec.spent = {};
  EXPECT_GT(rank.run(), 0);
}

// Each read of the clock is a millisecond after the one before.
TEST_F(OfNode0, CopiesAreChargedToTheTurn) {
  rank.submit(plan::kSend, 0, 20'000);
  rank.submit(plan::kRecv, 0, 20'000);
  world.clock.advance_at_each_look_ns(kMillisecond);
  EXPECT_LE(rank.run(), 4) << "of a millisecond at least: then the turn is over";
}

TEST_F(OfNode0, WhoHasLeftIsToldAgainOnALinkThatTakesAnothersPlace) {
  passing.rank_left(0);
  run();
  ASSERT_EQ(heard(FrameKind::rank_left), 1u);
  node(0).core.peer(1).link->say_goodbye();
  passing.before_renewal(1);
  node(0).core.renew_peer(1);
  node(1).core.renew_peer(0);
  rank.run();
  EXPECT_EQ(heard(FrameKind::rank_left), 1u) << "the link has said no hello";
  settle_acks();
  run();
  rank.run();
  run();
  EXPECT_EQ(heard(FrameKind::rank_left), 2u);
}

TEST_F(OfNode0, ALinkThatTakesAnothersPlaceIsWaitedFor) {
  node(0).core.peer(1).link->say_goodbye();
  passing.before_renewal(1);
  node(0).core.renew_peer(1);
  rank.submit(plan::kSend, 1, 8);
  EXPECT_FALSE(rank.client.next_completion().has_value()) << "it has not said what it knows";
}

// Node 1, where the hello of node 0 is that of a daemon which does not know sends.
class WithAnOlderNode : public AllNodes {
 protected:
  WithAnOlderNode()
      : AllNodes({.ranks = {{0}, {1}}, .eager_bytes = kEager, .known_features = 0}),
        rank(node(1), passing, 1) {}

  PointToPoint passing{node(1).core, node(1).group, node(1).room.offered()};
  PassingRank rank;
};

TEST_F(WithAnOlderNode, SendsAndRecvsAreRefusedByName) {
  for (const plan::Plan* plan : {&plan::kSend, &plan::kRecv}) {
    rank.submit(*plan, 0, 8);
    const auto completion = rank.client.next_completion();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(static_cast<Errc>(completion->status), Errc::unsupported);
    EXPECT_STREQ(completion->detail,
                 "the ternd of node 0 does not know send and recv: install this version there");
  }
  EXPECT_EQ(rank.run(), 0);
}

TEST_F(WithAnOlderNode, ItIsNotToldWhoHasLeft) {
  passing.rank_left(0);
  settle_acks();
  EXPECT_TRUE(node(0).frames_of(FrameKind::rank_left).empty());
}

}  // namespace
}  // namespace tern::daemon::point_to_point_test
