#include "collective/mailbox.h"

#include <string>
#include <vector>

#include "plan/plan.h"
#include "shm/sharding.h"
#include "tests/collective/mailbox_rig.h"

namespace tern::collective {
namespace mailbox_test {

TEST_F(MailboxOfNode0, AnEagerSendEndsWithTheReceiversWord) {
  const PassId id = send(0, 2, 100);
  const PassStep offered = carry_out(PassAction::offer);
  EXPECT_EQ(offered.bytes, 100u);
  EXPECT_TRUE(mailbox.pass(id).eager);
  step(PassAction::none);
  EXPECT_TRUE(mailbox.on_end(1, id, kOk));
  expect_end(id, Errc::ok);
  expect_idle();
}

TEST_F(MailboxOfNode0, ALargeSendWaitsToBeAcceptedAndForItsMemory) {
  const PassId id = send(0, 2, 2500);
  EXPECT_EQ(carry_out(PassAction::offer).bytes, 0u);
  step(PassAction::none);
  EXPECT_TRUE(mailbox.on_accept(1, id));
  step(PassAction::none, 0);
  std::uint64_t at = 0;
  for (const std::uint64_t bytes : {1024u, 1024u, 452u}) {
    const PassStep piece = carry_out(PassAction::piece);
    EXPECT_EQ(piece.offset, at);
    EXPECT_EQ(piece.bytes, bytes);
    at += bytes;
  }
  step(PassAction::none);
  mailbox.piece_freed(id);
  mailbox.piece_freed(id);
  EXPECT_TRUE(mailbox.on_end(1, id, kOk));
  step(PassAction::none);
  mailbox.piece_freed(id);
  expect_end(id, Errc::ok);
  expect_idle();
}

TEST_F(MailboxOfNode0, EagerOnesBeyondTheReserveAreOfferedWithoutElements) {
  std::vector<PassId> sends;
  for (std::uint32_t i = 0; i <= Mailbox::kEagerReserve; ++i) {
    sends.push_back(send(0, 2, 10));
    carry_out(PassAction::offer);
    EXPECT_EQ(mailbox.pass(sends.back()).eager, i < Mailbox::kEagerReserve);
  }
  EXPECT_TRUE(mailbox.on_end(1, sends[0], kOk));
  expect_end(sends[0], Errc::ok);
  const PassId other = send(1, 3, 10);
  const PassId next = send(0, 2, 10);
  carry_out(PassAction::offer);
  carry_out(PassAction::offer);
  EXPECT_TRUE(mailbox.pass(other).eager) << "each node has a reserve of its own";
  EXPECT_TRUE(mailbox.pass(next).eager);
}

TEST_F(MailboxOfNode0, WhatHasNoElementsIsAlwaysEager) {
  for (std::uint32_t i = 0; i < 2 * Mailbox::kEagerReserve; ++i) {
    const PassId id = send(0, 2, 0, i);
    carry_out(PassAction::offer);
    EXPECT_TRUE(mailbox.pass(id).eager);
  }
}

TEST_F(MailboxOfNode0, AnOfferMeetsTheFirstRecvThatAdmitsIt) {
  const PassId other_tag = recv(0, 2, 10, 8);
  const PassId other_source = recv(0, 3, 10);
  const PassId any = recv(0, kAnySource, 10);
  const PassId second = recv(0, 2, 10);
  EXPECT_TRUE(mailbox.on_offer(offer(0, 10)));
  EXPECT_EQ(carry_out(PassAction::deliver).pass, any);
  EXPECT_TRUE(mailbox.on_offer(offer(1, 7)));
  EXPECT_EQ(mailbox.pass(second).state, PassState::moving);
  EXPECT_EQ(mailbox.pass(other_tag).state, PassState::waiting);
  EXPECT_EQ(mailbox.pass(other_source).state, PassState::waiting);
  EXPECT_EQ(mailbox.pass(any).source, 2u);
  EXPECT_EQ(mailbox.pass(any).elements, 10u);
}

TEST_F(MailboxOfNode0, ARecvMeetsTheFirstOfferThatItAdmits) {
  EXPECT_TRUE(mailbox.on_offer(offer(4, 10)));
  EXPECT_TRUE(mailbox.on_offer(offer(2, 20)));
  const PassId first = recv(0, 2, 100);
  const PassId second = recv(0, kAnySource, 100);
  EXPECT_EQ(mailbox.offer(carry_out(PassAction::deliver).offer).number, 4u);
  EXPECT_EQ(mailbox.offer(carry_out(PassAction::deliver).offer).number, 2u);
  EXPECT_EQ(mailbox.pass(first).elements, 10u);
  EXPECT_EQ(mailbox.pass(second).elements, 20u);
}

TEST_F(MailboxOfNode0, PiecesFillTheRecvOneAfterTheOther) {
  const PassId id = recv(0, 2, 3000);
  EXPECT_TRUE(mailbox.on_offer(offer(9, 2000)));
  Mailbox::Place place;
  EXPECT_FALSE(mailbox.expect_piece(1, 9, 10, place)) << "it has not been accepted";
  carry_out(PassAction::accept);
  EXPECT_FALSE(mailbox.expect_piece(1, 9, 0, place));
  EXPECT_FALSE(mailbox.expect_piece(1, 9, 2001, place)) << "more than was offered";
  ASSERT_TRUE(mailbox.expect_piece(1, 9, 1200, place));
  EXPECT_EQ(place.pass, id);
  EXPECT_EQ(place.offset, 0u);
  mailbox.on_piece(place, 1200, Mailbox::Piece::abandoned);
  ASSERT_TRUE(mailbox.expect_piece(1, 9, 1200, place));
  EXPECT_EQ(place.offset, 0u) << "it comes again";
  mailbox.on_piece(place, 1200, Mailbox::Piece::whole);
  EXPECT_FALSE(mailbox.expect_piece(1, 9, 801, place));
  ASSERT_TRUE(mailbox.expect_piece(1, 9, 800, place));
  EXPECT_EQ(place.offset, 1200u);
  mailbox.on_piece(place, 800, Mailbox::Piece::whole);
  const PassStep closed = step(PassAction::close);
  EXPECT_EQ(mailbox.outcome_of(closed.offer).code, Errc::ok);
  mailbox.done(closed);
  EXPECT_EQ(mailbox.pass(id).elements, 2000u);
  expect_end(id, Errc::ok);
  expect_idle();
  EXPECT_TRUE(mailbox.expect_piece(1, 9, 800, place)) << "late, and nobody's";
  EXPECT_EQ(place.pass, kNoSlot);
}

TEST_F(MailboxOfNode0, ARecvThatIsBeingFilledEndsWhenTheFrameIsThrough) {
  const PassId id = recv(0, 2, 2000);
  EXPECT_TRUE(mailbox.on_offer(offer(9, 2000)));
  carry_out(PassAction::accept);
  Mailbox::Place place;
  ASSERT_TRUE(mailbox.expect_piece(1, 9, 1000, place));
  mailbox.fail(id, {Errc::cancelled, 0, "cancelled by rank 0"});
  const PassStep closed = step(PassAction::close);
  EXPECT_EQ(mailbox.outcome_of(closed.offer).code, Errc::cancelled);
  mailbox.done(closed);
  step(PassAction::none);
  mailbox.on_piece(place, 1000, Mailbox::Piece::whole);
  expect_end(id, Errc::cancelled, "cancelled by rank 0");
  expect_idle();
}

TEST_F(MailboxOfNode0, WhatDoesNotFitFailsOnBothSides) {
  const PassId small = recv(0, 2, 10);
  EXPECT_TRUE(mailbox.on_offer(offer(0, 5000)));
  const std::string text = "rank 2 sends 5000 elements to rank 0 with tag 7, which has room for 10";
  const PassStep closed = step(PassAction::close);
  EXPECT_EQ(mailbox.outcome_of(closed.offer).text, text);
  mailbox.done(closed);
  expect_end(small, Errc::mismatch, text);
  expect_idle();
}

TEST_F(MailboxOfNode0, WhatIsInPiecesHasNoElementsInItsOffer) {
  const PassId id = mailbox.submit({true, 0, {0, 2, 7, DType::f32, 10, true}, now, true});
  EXPECT_EQ(carry_out(PassAction::offer).bytes, 0u);
  EXPECT_FALSE(mailbox.pass(id).eager);
  EXPECT_TRUE(mailbox.on_accept(1, id));
  EXPECT_EQ(carry_out(PassAction::piece).bytes, 40u);
  mailbox.piece_freed(id);
  EXPECT_TRUE(mailbox.on_end(1, id, kOk));
  expect_end(id, Errc::ok);
  const PassId empty = mailbox.submit({true, 0, {0, 2, 7, DType::f32, 0, true}, now, true});
  carry_out(PassAction::offer);
  EXPECT_TRUE(mailbox.pass(empty).eager) << "it has none";
  EXPECT_TRUE(mailbox.on_end(1, empty, kOk));
  expect_end(empty, Errc::ok);
  expect_idle();
}

TEST_F(MailboxOfNode0, ASendWhoseElementsComeLaterSendsThePiecesThatAreThere) {
  const PassId id = mailbox.submit({true, 0, {0, 2, 7, DType::u8, 2500}, now, false, true});
  EXPECT_EQ(carry_out(PassAction::offer).bytes, 0u);
  mailbox.arrived(id, 1023);
  EXPECT_TRUE(mailbox.on_accept(1, id));
  step(PassAction::none);
  mailbox.arrived(id, 2100);
  EXPECT_EQ(carry_out(PassAction::piece).bytes, 1024u);
  EXPECT_EQ(carry_out(PassAction::piece).bytes, 1024u);
  step(PassAction::none);
  mailbox.arrived(id, 2500);
  EXPECT_EQ(carry_out(PassAction::piece).bytes, 452u);
  for (int i = 0; i < 3; ++i) mailbox.piece_freed(id);
  EXPECT_TRUE(mailbox.on_end(1, id, kOk));
  expect_end(id, Errc::ok);
  expect_idle();
}

TEST_F(MailboxOfNode0, WhatIsNotThereDoesNotGoWithItsOffer) {
  const PassId id = mailbox.submit({true, 0, {0, 2, 7, DType::u8, 10}, now, false, true});
  EXPECT_EQ(carry_out(PassAction::offer).bytes, 0u);
  EXPECT_TRUE(mailbox.on_accept(1, id));
  mailbox.fail(id, {Errc::cancelled, 0, "cancelled"});
  mailbox.arrived(id, 10);
  carry_out(PassAction::withdraw);
  EXPECT_TRUE(mailbox.on_end(1, id, {Errc::cancelled, 0, "cancelled"}));
  expect_end(id, Errc::cancelled, "cancelled");
  expect_idle();
}

TEST_F(MailboxOfNode0, WithinANodePiecesAreCopiedAsTheyCome) {
  const PassId out = mailbox.submit({true, 0, {0, 1, 7, DType::u8, 1500}, now, false, true});
  const PassId in = recv(1, 0, 1500);
  step(PassAction::none);
  mailbox.arrived(out, 1024);
  EXPECT_EQ(carry_out(PassAction::copy).bytes, 1024u);
  step(PassAction::none);
  mailbox.arrived(out, 1500);
  EXPECT_EQ(carry_out(PassAction::copy).bytes, 476u);
  carry_out(PassAction::close);
  std::vector<PassId> ended;
  ended.reserve(2);
  for (int i = 0; i < 2; ++i) ended.push_back(carry_out(PassAction::complete).pass);
  EXPECT_NE(ended[0], ended[1]);
  EXPECT_EQ(in + out, ended[0] + ended[1]);
  expect_idle();
}

TEST_F(MailboxOfNode0, WhatMayHaveLostValuesMeetsNoRecvThatDoesNotTakeIt) {
  const std::string text =
      "rank 2 sends to rank 0 with tag 7 by a recipe that loses values, and the recv has none: "
      "give "
      "both one, or neither";
  const PassId id = recv(0, 2, 10);
  Mailbox::Arriving lossy = offer(0, 10);
  lossy.envelope.lossy = true;
  EXPECT_TRUE(mailbox.on_offer(lossy));
  carry_out(PassAction::close);
  expect_end(id, Errc::mismatch, text);
  const PassId taking = mailbox.submit({false, 0, {2, 0, 7, DType::u8, 10, true}, now});
  EXPECT_TRUE(mailbox.on_offer(offer(0, 10)));
  carry_out(PassAction::deliver);
  carry_out(PassAction::close);
  expect_end(taking, Errc::ok);
  expect_idle();
}

TEST_F(MailboxOfNode0, ADamagedOfferFailsWithTheRecvThatItMeets) {
  const PassId id = recv(0, 2, 10);
  Mailbox::Arriving damaged = offer(0, 0);
  damaged.damaged = true;
  damaged.envelope.count = ~std::uint64_t{0};
  EXPECT_TRUE(mailbox.on_offer(damaged));
  carry_out(PassAction::close);
  expect_end(id, Errc::corrupt_data, "a payload from node 1 did not match its checksum");
}

TEST_F(MailboxOfNode0, WhatIsNotOfferedYetIsTakenBackWithoutAWord) {
  const PassId id = send(0, 2, 10);
  mailbox.fail(id, {Errc::cancelled, 0, "cancelled"});
  expect_end(id, Errc::cancelled, "cancelled");
  expect_idle();
}

TEST_F(MailboxOfNode0, AWithdrawnSendWaitsForTheReceiversWord) {
  const PassId id = send(0, 2, 5000);
  carry_out(PassAction::offer);
  mailbox.fail(id, {Errc::cancelled, 0, "cancelled"});
  carry_out(PassAction::withdraw);
  EXPECT_TRUE(mailbox.on_accept(1, id)) << "it has crossed the withdrawal";
  step(PassAction::none);
  EXPECT_FALSE(mailbox.on_end(1, id, kOk)) << "not all has been sent";
  EXPECT_TRUE(mailbox.on_end(1, id, {Errc::cancelled, kNoRank, "as you say"}));
  expect_end(id, Errc::cancelled, "cancelled");
  expect_idle();
}

TEST_F(MailboxOfNode0, WhatWasDeliveredBeforeTheWithdrawalHasSucceeded) {
  const PassId id = send(0, 2, 10);
  carry_out(PassAction::offer);
  mailbox.fail(id, {Errc::op_timeout, 2, "too late"});
  EXPECT_TRUE(mailbox.on_end(1, id, kOk));
  expect_end(id, Errc::ok);
  expect_idle();
}

TEST_F(MailboxOfNode0, AWithdrawnOfferMeetsNobody) {
  EXPECT_TRUE(mailbox.on_offer(offer(0, 5000)));
  EXPECT_TRUE(mailbox.on_withdraw(1, 0, {Errc::cancelled, 2, "cancelled by rank 2"}));
  EXPECT_TRUE(mailbox.on_withdraw(1, 0, {Errc::cancelled, 2, "again"})) << "it changes nothing";
  const PassId id = recv(0, 2, 5000);
  carry_out(PassAction::close);
  step(PassAction::none);
  EXPECT_EQ(mailbox.pass(id).state, PassState::waiting);
  // One that has met its recv takes it along.
  EXPECT_TRUE(mailbox.on_offer(offer(0, 5000)));
  EXPECT_TRUE(mailbox.on_withdraw(1, 0, {Errc::cancelled, 2, "cancelled by rank 2"}));
  carry_out(PassAction::close);
  expect_end(id, Errc::cancelled, "cancelled by rank 2");
  EXPECT_TRUE(mailbox.on_withdraw(1, 0, {Errc::cancelled, 2, "late"}));
  expect_idle();
}

TEST_F(MailboxOfNode0, OnOneNodeElementsAreCopiedPieceByPiece) {
  const PassId out = send(0, 1, 2500);
  const PassId in = recv(1, 0, 2500);
  for (const std::uint64_t bytes : {1024u, 1024u, 452u}) {
    const PassStep copied = carry_out(PassAction::copy);
    EXPECT_EQ(copied.pass, in);
    EXPECT_EQ(copied.from, out);
    EXPECT_EQ(copied.bytes, bytes);
  }
  carry_out(PassAction::close);
  expect_end(out, Errc::ok);
  expect_end(in, Errc::ok);
  const PassId self = send(0, 0, 0);
  const PassId self_in = recv(0, kAnySource, 10);
  carry_out(PassAction::close);
  expect_end(self, Errc::ok);
  EXPECT_EQ(mailbox.pass(self_in).elements, 0u);
  expect_end(self_in, Errc::ok);
  expect_idle();
}

TEST_F(MailboxOfNode0, ACancelWithinANode) {
  const PassId lonely = send(0, 1, 10);
  mailbox.fail(lonely, {Errc::cancelled, 0, "cancelled"});
  expect_end(lonely, Errc::cancelled, "cancelled");
  expect_idle();
  const PassId out = send(0, 1, 5000);
  const PassId in = recv(1, 0, 5000);
  carry_out(PassAction::copy);
  mailbox.fail(out, {Errc::cancelled, 0, "cancelled"});
  carry_out(PassAction::close);
  expect_end(out, Errc::cancelled, "cancelled");
  expect_end(in, Errc::cancelled, "cancelled");
  expect_idle();
}

TEST_F(MailboxOfNode0, ARankThatHasLeftIsNotWaitedFor) {
  const PassId in = recv(0, 3, 10);
  const PassId any = recv(0, kAnySource, 10, 9);
  EXPECT_FALSE(mailbox.on_rank_left(1, 3)) << "it is of another node";
  EXPECT_FALSE(mailbox.on_rank_left(1, 4));
  EXPECT_TRUE(mailbox.on_rank_left(2, 3));
  expect_end(in, Errc::group_left, "recv from rank 3, tag 7: rank 3 has left the group");
  const PassId late = send(0, 3, 10);
  expect_end(late, Errc::group_left, "send to rank 3, tag 7: rank 3 has left the group");
  EXPECT_EQ(mailbox.pass(any).state, PassState::waiting);
  mailbox.rank_left(0);
  expect_end(any, Errc::group_left, "recv from any rank, tag 9: rank 0 has left the group");
  EXPECT_TRUE(mailbox.on_offer(offer(0, 10)));
  const PassStep closed = step(PassAction::close);
  EXPECT_STREQ(mailbox.outcome_of(closed.offer).text, "rank 0 has left the group");
  mailbox.done(closed);
  expect_idle();
}

TEST_F(MailboxOfNode0, WhatARankSubmitsAfterItHasLeftEndsAtOnce) {
  mailbox.rank_left(0);
  const PassId any = recv(0, kAnySource, 10);
  expect_end(any, Errc::group_left, "recv from any rank, tag 7: rank 0 has left the group");
  for (const std::uint32_t to : {1u, 2u}) {
    const PassId sent = send(0, to, 10);
    expect_end(sent, Errc::group_left,
               "send to rank " + std::to_string(to) + ", tag 7: rank 0 has left the group");
  }
  expect_idle();
}

TEST_F(MailboxOfNode0, TheEndOfTheGroupEndsAllOnceTheirMemoryIsFree) {
  const PassId sending = send(0, 2, 5000);
  carry_out(PassAction::offer);
  EXPECT_TRUE(mailbox.on_accept(1, sending));
  carry_out(PassAction::piece);
  const PassId local = send(0, 1, 10, 1);
  EXPECT_TRUE(mailbox.on_offer(offer(0, 10)));
  const PassId in = recv(1, kAnySource, 10, 2);
  mailbox.end(Errc::peer_lost, "lost node 1");
  int closed = 0, completed = 0;
  for (PassStep next = mailbox.next(1); next.action != PassAction::none; next = mailbox.next(1)) {
    if (next.action == PassAction::complete) {
      ++completed;
      EXPECT_NE(next.pass, sending) << "a piece of it is under way";
      EXPECT_EQ(mailbox.pass(next.pass).outcome.code, Errc::peer_lost);
    } else {
      EXPECT_EQ(next.action, PassAction::close);
      ++closed;
    }
    mailbox.done(next);
  }
  EXPECT_EQ(closed, 2);
  EXPECT_EQ(completed, 2) << local << " and " << in;
  mailbox.piece_freed(sending);
  expect_end(sending, Errc::peer_lost, "send to rank 2, tag 7: lost node 1");
  expect_idle();
}

TEST_F(MailboxOfNode0, ARankHasSoManyInFlight) {
  for (std::uint32_t i = 0; i < plan::kMaxPassing; ++i) ASSERT_NE(recv(0, 2, 1, i), kNoSlot);
  EXPECT_EQ(recv(0, 2, 1), kNoSlot);
  EXPECT_EQ(send(0, 2, 1), kNoSlot);
  const PassId other = recv(1, 2, 1);
  EXPECT_NE(other, kNoSlot) << "the other rank's are its own";
  mailbox.fail(0, {Errc::cancelled, 0, "cancelled"});
  expect_end(0, Errc::cancelled, "cancelled");
  EXPECT_NE(send(0, 2, 1), kNoSlot);
}

// ---- A peer that breaks the protocol ------------------------------------------------------------

TEST_F(MailboxOfNode0, RefusesOffersThatMakeNoSense) {
  const auto refused = [&](auto change) {
    Mailbox::Arriving bad = offer(0, 10);
    change(bad);
    EXPECT_FALSE(mailbox.on_offer(bad));
  };
  refused([](auto& bad) { bad.number = plan::kMaxPassing; });  // node 1 has one rank
  refused([](auto& bad) { bad.envelope.source = 3; });
  refused([](auto& bad) { bad.envelope.source = 4; });
  refused([](auto& bad) { bad.envelope.destination = 2; });
  refused([](auto& bad) { bad.envelope.destination = 4; });
  refused([](auto& bad) { bad.envelope.dtype = static_cast<DType>(200); });
  refused([](auto& bad) { bad.envelope.count = plan::kMaxElements + 1; });
  refused([](auto& bad) { bad.envelope.count = 0, bad.eager = false; });
  EXPECT_TRUE(mailbox.on_offer(offer(0, 10)));
  EXPECT_FALSE(mailbox.on_offer(offer(0, 10))) << "the number is in use";
  shape.lanes = 4;
  shape.lane = shape.lane == shm::lane_of_tag(0, 7, 4) ? shape.lane + 1 : shape.lane;
  EXPECT_FALSE(mailbox.on_offer(offer(1, 10))) << "it belongs on another lane";
}

TEST_F(MailboxOfNode0, RefusesWordsAboutSendsThatItHasNotOffered) {
  const auto refused = [&](std::uint32_t node, std::uint64_t number) {
    EXPECT_FALSE(mailbox.on_accept(node, number));
    EXPECT_FALSE(mailbox.on_end(node, number, kOk));
    EXPECT_FALSE(mailbox.on_end(node, number, {Errc::mismatch, 2, "lie"}));
  };
  refused(1, 0);
  refused(1, ~std::uint64_t{0});
  const PassId id = send(0, 2, 5000);
  refused(1, id);
  carry_out(PassAction::offer);
  refused(2, id);  // it was offered to another node
  EXPECT_FALSE(mailbox.on_end(1, id, kOk)) << "nothing has been sent";
  EXPECT_TRUE(mailbox.on_accept(1, id));
  EXPECT_FALSE(mailbox.on_accept(1, id)) << "twice";
  const PassId in = recv(0, 2, 10);
  refused(1, in);
  const PassId eager = send(0, 2, 10);
  carry_out(PassAction::piece);
  carry_out(PassAction::offer);
  EXPECT_FALSE(mailbox.on_accept(1, eager)) << "it has sent all";
  const PassId local = send(0, 1, 10);
  refused(0, local);
}

// A peer that fills its numbers is at its bound, and is refused beyond.
TEST_F(MailboxOfNode0, RemembersNoMoreOffersThanANodeMayHave) {
  for (PassId number = 0; number < plan::kMaxPassing; ++number) {
    ASSERT_TRUE(mailbox.on_offer(offer(number, 5000)));
  }
  EXPECT_FALSE(mailbox.on_offer(offer(plan::kMaxPassing, 5000)));
  mailbox.end(Errc::protocol_error, "node 1 breaks the protocol");
  for (PassId number = 0; number < plan::kMaxPassing; ++number) carry_out(PassAction::close);
  expect_idle();
}

}  // namespace mailbox_test
}  // namespace tern::collective
