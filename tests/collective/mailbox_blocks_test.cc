// Sends whose pieces are blocks, which are made and read in a time of their own.

#include "plan/plan.h"
#include "tests/collective/mailbox_rig.h"

namespace tern::collective {
namespace mailbox_test {

class MailboxOfBlocks : public MailboxOfNode0 {
 protected:
  // A recv of so many floats has accepted offer 9 of node 1, whose pieces are blocks.
  PassId accept_blocks(std::uint64_t count) {
    const PassId id = mailbox.submit({false, 0, {2, 0, 7, DType::f32, count, true}, now});
    Mailbox::Arriving lossy = offer(9, count);
    lossy.envelope.dtype = DType::f32;
    lossy.envelope.lossy = true;
    lossy.eager = false;
    EXPECT_TRUE(mailbox.on_offer(lossy));
    carry_out(PassAction::accept);
    return id;
  }
};

TEST_F(MailboxOfBlocks, APieceThatIsABlockSaysHowManyElementsItHasWhenItIsRead) {
  const PassId id = accept_blocks(600);
  Mailbox::Place place;
  ASSERT_TRUE(mailbox.expect_piece(1, 9, 5000, place)) << "who reads it says what is in it";
  EXPECT_EQ(place.block_of, 1024u) << "a chunk";
  mailbox.on_piece(place, 1024, Mailbox::Piece::whole);
  EXPECT_FALSE(mailbox.expect_piece(1, 9, 0, place));
  ASSERT_TRUE(mailbox.expect_piece(1, 9, 40, place));
  EXPECT_EQ(place.offset, 1024u);
  mailbox.on_piece(place, 1024, Mailbox::Piece::whole);
  ASSERT_TRUE(mailbox.expect_piece(1, 9, 40, place));
  EXPECT_EQ(place.block_of, 352u) << "what is left";
  mailbox.on_piece(place, 352, Mailbox::Piece::whole);
  carry_out(PassAction::close);
  expect_end(id, Errc::ok);
  expect_idle();
}

TEST_F(MailboxOfBlocks, ABlockMayComeBeforeTheOneBeforeItIsRead) {
  const PassId id = accept_blocks(300);
  Mailbox::Place first, second, third;
  ASSERT_TRUE(mailbox.expect_piece(1, 9, 40, first));
  mailbox.landed(first, 1000);
  ASSERT_TRUE(mailbox.expect_piece(1, 9, 40, second));
  EXPECT_EQ(second.offset, 1000u);
  EXPECT_EQ(second.block_of, 200u);
  mailbox.landed(second, 200);
  EXPECT_FALSE(mailbox.expect_piece(1, 9, 40, third)) << "more than was offered";
  mailbox.on_piece(second, 200, Mailbox::Piece::whole);
  step(PassAction::none);
  mailbox.on_piece(first, 1000, Mailbox::Piece::whole);
  carry_out(PassAction::close);
  expect_end(id, Errc::ok);
  expect_idle();
}

TEST_F(MailboxOfBlocks, ABlockOfASendIsMadeAfterTheOneBeforeIt) {
  Passing blocks{true, 0, {0, 2, 7, DType::f32, 600, true}, now};
  blocks.in_pieces = blocks.arriving = true;
  const PassId id = mailbox.submit(blocks);
  mailbox.arrived(id, 1024);
  carry_out(PassAction::offer);
  EXPECT_TRUE(mailbox.on_accept(1, id));
  const PassStep first = step(PassAction::piece);
  mailbox.arrived(id, 2400);
  step(PassAction::none);
  mailbox.done(first);
  const PassStep second = step(PassAction::piece);
  EXPECT_EQ(second.offset, 1024u);
  step(PassAction::none);
  mailbox.done(second);
  EXPECT_EQ(carry_out(PassAction::piece).bytes, 352u);
  for (int i = 0; i < 3; ++i) mailbox.piece_freed(id);
  EXPECT_TRUE(mailbox.on_end(1, id, kOk));
  expect_end(id, Errc::ok);
  expect_idle();
}

}  // namespace mailbox_test
}  // namespace tern::collective
