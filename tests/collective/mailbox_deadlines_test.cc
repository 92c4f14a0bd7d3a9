// What waits, stands still, or is owed by a node, and for how long.

#include "tests/collective/mailbox_rig.h"

namespace tern::collective {
namespace mailbox_test {

TEST_F(MailboxOfNode0, WhatHasMetNobodyExpires) {
  const PassId out = send(0, 2, 10);
  carry_out(PassAction::offer);
  now += kSecond;
  const PassId in = recv(0, kAnySource, 10, 3);
  mailbox.expire(6 * kSecond, 2 * kSecond);
  step(PassAction::none);
  mailbox.expire(9 * kSecond, 2 * kSecond);
  carry_out(PassAction::withdraw);
  expect_end(in, Errc::op_timeout, "after 2000 ms no rank has sent to rank 0 with tag 3");
  EXPECT_TRUE(mailbox.on_end(1, out, {Errc::op_timeout, kNoRank, ""}));
  expect_end(out, Errc::op_timeout, "after 2000 ms rank 2 has no recv from rank 0 with tag 7");
}

// What a hostile node accepts, or offers, and then leaves lying.
TEST_F(MailboxOfNode0, ASendThatIsAcceptedAndNeverEndedExpires) {
  const PassId id = send(0, 2, 1000);
  carry_out(PassAction::offer);
  EXPECT_TRUE(mailbox.on_accept(1, id));
  carry_out(PassAction::piece);
  mailbox.piece_freed(id);
  EXPECT_EQ(mailbox.expire(6 * kSecond, 2 * kSecond), kNoSlot);
  mailbox.expire(8 * kSecond - 1, 2 * kSecond);
  step(PassAction::none);
  mailbox.expire(8 * kSecond, 2 * kSecond);
  carry_out(PassAction::withdraw);
  EXPECT_TRUE(mailbox.on_end(1, id, {Errc::op_timeout, kNoRank, "as you say"}));
  expect_end(id, Errc::op_timeout, "for 2000 ms nothing has moved to rank 2 with tag 7");
  expect_idle();
}

TEST_F(MailboxOfNode0, ARecvWhosePiecesDoNotComeExpires) {
  const PassId id = recv(0, kAnySource, 1000);
  EXPECT_TRUE(mailbox.on_offer(offer(0, 1000)));
  carry_out(PassAction::accept);
  mailbox.expire(6 * kSecond, 2 * kSecond);
  Mailbox::Place place;
  ASSERT_TRUE(mailbox.expect_piece(1, 0, 10, place));
  mailbox.on_piece(place, 10, Mailbox::Piece::whole);
  mailbox.expire(8 * kSecond, 2 * kSecond);
  step(PassAction::none);
  mailbox.expire(10 * kSecond, 2 * kSecond);
  carry_out(PassAction::close);
  expect_end(id, Errc::op_timeout, "for 2000 ms nothing has moved from rank 2 with tag 7");
  expect_idle();
}

TEST_F(MailboxOfNode0, WithoutATimeoutItMayStandStill) {
  const PassId id = recv(0, 2, 1000);
  EXPECT_TRUE(mailbox.on_offer(offer(0, 1000)));
  carry_out(PassAction::accept);
  mailbox.expire(6 * kSecond, 0);
  EXPECT_EQ(mailbox.expire(6000 * kSecond, 0), kNoSlot);
  EXPECT_EQ(mailbox.pass(id).state, PassState::moving);
}

TEST_F(MailboxOfNode0, ANodeThatOwesItsLastWordIsNamed) {
  const PassId id = send(0, 2, 5000);
  carry_out(PassAction::offer);
  mailbox.fail(id, {Errc::cancelled, 0, "cancelled"});
  carry_out(PassAction::withdraw);
  EXPECT_EQ(mailbox.expire(6 * kSecond, 0), kNoSlot);
  EXPECT_EQ(mailbox.expire(6 * kSecond + Mailbox::kLastWordNs - 1, 0), kNoSlot);
  EXPECT_EQ(mailbox.expire(6 * kSecond + Mailbox::kLastWordNs, 0), 1u);
  EXPECT_TRUE(mailbox.on_end(1, id, {Errc::cancelled, kNoRank, "as you say"}));
  expect_end(id, Errc::cancelled, "cancelled");
  EXPECT_EQ(mailbox.expire(7 * kSecond + 2 * Mailbox::kLastWordNs, 0), kNoSlot);
}

// Of a frame that is sent byte by byte the memory is used until the frame's end.
TEST_F(MailboxOfNode0, ANodeThatKeepsAFrameOpenIsNamedAfterTheEndToo) {
  const PassId id = recv(0, 2, 1000);
  EXPECT_TRUE(mailbox.on_offer(offer(0, 1000)));
  carry_out(PassAction::accept);
  Mailbox::Place place;
  ASSERT_TRUE(mailbox.expect_piece(1, 0, 10, place));
  mailbox.end(Errc::group_left, "all have left");
  carry_out(PassAction::close);
  step(PassAction::none);
  EXPECT_EQ(mailbox.expire(6 * kSecond, 0), kNoSlot);
  EXPECT_EQ(mailbox.expire(6 * kSecond + Mailbox::kLastWordNs, 0), 1u);
  mailbox.on_piece(place, 0, Mailbox::Piece::abandoned);
  EXPECT_EQ(mailbox.expire(7 * kSecond + Mailbox::kLastWordNs, 0), kNoSlot);
  expect_end(id, Errc::group_left, "recv from rank 2, tag 7: all have left");
  expect_idle();
}

TEST_F(MailboxOfNode0, WithinANodeNothingThatHasMetExpires) {
  send(0, 1, 1000);
  const PassId in = recv(1, 0, 1000);
  mailbox.expire(6 * kSecond, kSecond);
  EXPECT_EQ(mailbox.expire(600 * kSecond, kSecond), kNoSlot);
  EXPECT_EQ(mailbox.pass(in).state, PassState::moving);
}

}  // namespace mailbox_test
}  // namespace tern::collective
