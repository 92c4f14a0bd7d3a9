#include "daemon/lane/pass_copies.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "group_rig.h"

namespace tern::daemon::pass_copies_test {
namespace {

using collective::Mailbox;
using collective::PassId;
using collective::Passing;
using collective::PassState;
using group_test::kSecond;

constexpr std::uint64_t kBytes = 1000;
constexpr std::uint64_t kWakeBytes = 512 << 10;

// What a client has beside a send or recv: where it says how far it has copied, and is told.
struct Copying {
  static constexpr shm::CopyProgress::Shape kShape{1, 3};

  Copying() {
    client.memory = &memory;
    client.arena = arena;
  }
  static shm::SubmitEntry entry() {
    shm::SubmitEntry entry{};
    entry.flags = shm::kEntryHasProgress;
    entry.progress_records = kShape.records;
    return entry;
  }

  ClientMemory memory;
  alignas(64) std::array<std::byte, kShape.bytes()> block{};
  Region arena{block.data(), block.size()};
  shm::CopyProgress progress{block.data(), kShape};
  LaneClient client;
};

// Sends of rank 0 to rank 1, which is on another node, and recvs from it.
class PassCopiesTest : public group_test::OneNode {
 protected:
  PassId begin_send(Copying& copying, std::uint64_t bytes = kBytes) {
    Passing what;
    what.sends = what.arriving = what.in_pieces = true;
    what.envelope = {0, 1, 7, DType::u8, bytes};
    return begin(what, copying);
  }
  PassId begin_recv(Copying& copying) {
    Passing what;
    what.envelope = {1, 0, 7, DType::u8, 8 * kWakeBytes};
    return begin(what, copying);
  }
  PassId begin(const Passing& what, Copying& copying) {
    const PassId pass = mailbox.submit(what);
    copies.begin(pass, Copying::entry(), copying.client);
    return pass;
  }
  // The lane is done with one that has ended; it offers others meanwhile.
  void finish(PassId pass) {
    collective::PassStep step = mailbox.next(1);
    for (; step.action == collective::PassAction::offer; step = mailbox.next(1)) mailbox.done(step);
    ASSERT_EQ(step.action, collective::PassAction::complete);
    ASSERT_EQ(step.pass, pass);
    copies.end(pass);
    mailbox.done(step);
  }
  void pass_time(std::uint64_t ns) {
    world.clock.advance_ns(ns);
    copies.expire(world.clock.now_ns(), kSecond);
  }
  const collective::Pass& pass(PassId id) const { return mailbox.pass(id); }
  bool has_failed(PassId id) const { return pass(id).outcome.code != Errc::ok; }

  Mailbox mailbox{node.core.setup().shape};
  PassCopies copies{node.core, mailbox};
  Copying one, other;
};

// ---- What is sent

TEST_F(PassCopiesTest, AWatermarkSaysHowMuchMayBeRead) {
  const PassId send = begin_send(one);
  EXPECT_FALSE(copies.look());
  one.progress.raise_input(600);
  EXPECT_EQ(pass(send).ready, 0u) << "nobody has looked";
  EXPECT_TRUE(copies.look());
  EXPECT_EQ(pass(send).ready, 600u);
  EXPECT_FALSE(copies.look()) << "nothing has moved";
  one.progress.raise_input(kBytes);
  EXPECT_TRUE(copies.look());
  EXPECT_EQ(pass(send).ready, kBytes);
  one.progress.raise_input(0);
  EXPECT_FALSE(copies.look()) << "what is all there is not looked at again";
  EXPECT_FALSE(has_failed(send));
}

TEST_F(PassCopiesTest, EachSendHasAWatermarkOfItsOwn) {
  const PassId first = begin_send(one), second = begin_send(other, 10);
  other.progress.raise_input(10);
  EXPECT_TRUE(copies.look());
  EXPECT_EQ(pass(first).ready, 0u);
  EXPECT_EQ(pass(second).ready, 10u);
  one.progress.raise_input(1);
  EXPECT_TRUE(copies.look());
  EXPECT_EQ(pass(first).ready, 1u);
}

// The sends of a batch are copied one after the other.
TEST_F(PassCopiesTest, ASendThatWaitsForTheCopyOfAnotherDoesNotStandStill) {
  other.client.memory = &one.memory;
  const PassId first = begin_send(one), second = begin_send(other);
  for (std::uint64_t bytes = kBytes / 4; bytes <= kBytes; bytes += kBytes / 4) {
    one.progress.raise_input(bytes);
    pass_time(kSecond - 1);
  }
  pass_time(kSecond - 1);
  EXPECT_FALSE(has_failed(second)) << pass(second).outcome.text;
  pass_time(1);
  EXPECT_STREQ(pass(second).outcome.text,
               "rank 0: for 1000 ms its input has stopped at 0 of 1000 bytes");
  EXPECT_FALSE(has_failed(first)) << pass(first).outcome.text;
}

TEST_F(PassCopiesTest, AWatermarkBeyondTheEndFailsItsSendAndNoOther) {
  const PassId liar = begin_send(one), honest = begin_send(other);
  one.progress.raise_input(kBytes + 1);
  other.progress.raise_input(5);
  EXPECT_TRUE(copies.look());
  EXPECT_EQ(pass(liar).state, PassState::ended);
  EXPECT_EQ(pass(liar).outcome.code, Errc::invalid_argument);
  EXPECT_EQ(pass(liar).outcome.about_rank, 0u);
  EXPECT_STREQ(pass(liar).outcome.text,
               "rank 0: the watermark of its input says 1001 of 1000 bytes, after 0");
  EXPECT_EQ(pass(liar).ready, 0u) << "nothing of it may be read";
  EXPECT_FALSE(has_failed(honest));
  EXPECT_EQ(pass(honest).ready, 5u);
  EXPECT_FALSE(copies.look()) << "it is not looked at again";
}

TEST_F(PassCopiesTest, AWatermarkThatFallsFailsItsSend) {
  const PassId send = begin_send(one);
  one.progress.raise_input(600);
  copies.look();
  one.progress.raise_input(599);
  EXPECT_TRUE(copies.look());
  EXPECT_EQ(pass(send).outcome.code, Errc::invalid_argument);
  EXPECT_STREQ(pass(send).outcome.text,
               "rank 0: the watermark of its input says 599 of 1000 bytes, after 600");
}

TEST_F(PassCopiesTest, ASendWhoseMemoryIsNoCopyIsNotWatched) {
  Passing what;
  what.sends = true;
  what.envelope = {0, 1, 7, DType::u8, kBytes};
  const PassId send = mailbox.submit(what);
  copies.begin(send, {}, one.client);
  one.progress.raise_input(5);
  EXPECT_FALSE(copies.look());
  pass_time(2 * kSecond);
  EXPECT_EQ(pass(send).ready, kBytes);
  EXPECT_FALSE(has_failed(send));
}

// ---- Time

TEST_F(PassCopiesTest, ASendThatStandsStillFailsAfterTheTimeout) {
  const PassId send = begin_send(one);
  one.progress.raise_input(8);
  pass_time(kSecond);
  EXPECT_FALSE(has_failed(send)) << "it has moved";
  EXPECT_EQ(pass(send).ready, 8u);
  pass_time(kSecond - 1);
  EXPECT_FALSE(has_failed(send));
  pass_time(1);
  EXPECT_EQ(pass(send).outcome.code, Errc::op_timeout);
  EXPECT_EQ(pass(send).outcome.about_rank, 0u);
  EXPECT_STREQ(pass(send).outcome.text,
               "rank 0: for 1000 ms its input has stopped at 8 of 1000 bytes");
}

TEST_F(PassCopiesTest, ToExpireIsToLook) {
  begin_send(one);
  EXPECT_FALSE(copies.expire(world.clock.now_ns(), kSecond));
  one.progress.raise_input(8);
  EXPECT_TRUE(copies.expire(world.clock.now_ns(), kSecond));
  EXPECT_FALSE(copies.expire(world.clock.now_ns(), kSecond));
}

TEST_F(PassCopiesTest, WithoutATimeoutItIsWaitedForWithoutEnd) {
  const PassId send = begin_send(one);
  world.clock.advance_ns(1000 * kSecond);
  copies.expire(world.clock.now_ns(), 0);
  EXPECT_FALSE(has_failed(send));
}

TEST_F(PassCopiesTest, WhatIsAllThereOrIsNothingDoesNotStandStill) {
  const PassId whole = begin_send(one), empty = begin_send(other, 0);
  one.progress.raise_input(kBytes);
  copies.look();
  pass_time(2 * kSecond);
  EXPECT_FALSE(has_failed(whole));
  EXPECT_FALSE(has_failed(empty));
}

// The lane's other copies of the same client look whether it copies at all.
TEST_F(PassCopiesTest, AMoveIsTheClientsLatestCopy) {
  begin_send(one);
  world.clock.advance_ns(kSecond);
  EXPECT_EQ(one.memory.copied_ns.load(), 0u);
  one.progress.raise_input(8);
  copies.look();
  EXPECT_EQ(one.memory.copied_ns.load(), world.clock.now_ns());
}

// ---- What is received

TEST_F(PassCopiesTest, DeliveriesAreListedWhileThereIsRoom) {
  const PassId recv = begin_recv(one);
  copies.deliver(recv, {0, 100});
  copies.deliver(recv, {100, 20});
  ASSERT_EQ(one.progress.delivered_records(0), 2u);
  EXPECT_EQ(one.progress.record(0, 0).offset, 0u);
  EXPECT_EQ(one.progress.record(0, 0).bytes, 100u);
  EXPECT_EQ(one.progress.record(0, 1).offset, 100u);
  EXPECT_EQ(one.progress.record(0, 1).bytes, 20u);
  copies.deliver(recv, {120, 0});
  EXPECT_EQ(one.progress.delivered_records(0), 2u) << "of nothing";
  for (std::uint64_t at = 120; at < 150; at += 10) copies.deliver(recv, {at, 10});
  EXPECT_EQ(one.progress.delivered_records(0), Copying::kShape.records);
  EXPECT_EQ(one.progress.record(0, 2).offset, 120u);
}

TEST_F(PassCopiesTest, AClientIsWokenForHalfAMebibyteAtATime) {
  const PassId recv = begin_recv(one);
  copies.deliver(recv, {0, kWakeBytes - 1});
  EXPECT_FALSE(one.client.rang) << "for so little nobody is woken";
  copies.deliver(recv, {kWakeBytes - 1, 1});
  EXPECT_TRUE(one.client.rang);
  one.client.rang = false;
  copies.deliver(recv, {kWakeBytes, kWakeBytes - 1});
  EXPECT_FALSE(one.client.rang) << "it is counted anew";
}

TEST_F(PassCopiesTest, EachRecvIsCountedByItself) {
  const PassId first = begin_recv(one), second = begin_recv(other);
  copies.deliver(first, {0, kWakeBytes / 2});
  copies.deliver(second, {0, kWakeBytes / 2});
  EXPECT_FALSE(one.client.rang);
  EXPECT_FALSE(other.client.rang);
  copies.deliver(second, {kWakeBytes / 2, kWakeBytes / 2});
  EXPECT_FALSE(one.client.rang);
  EXPECT_TRUE(other.client.rang);
  EXPECT_EQ(one.progress.delivered_records(0), 1u);
  EXPECT_EQ(other.progress.delivered_records(0), 2u);
}

TEST_F(PassCopiesTest, ARecvIsNotWatchedForWhatItHasNotSent) {
  const PassId recv = begin_recv(one);
  one.progress.raise_input(5);
  EXPECT_FALSE(copies.look());
  pass_time(2 * kSecond);
  EXPECT_FALSE(has_failed(recv));
}

// ---- Ends

TEST_F(PassCopiesTest, ASendThatHasEndedIsNotLookedAt) {
  const PassId send = begin_send(one), stays = begin_send(other);
  mailbox.fail(send, {Errc::cancelled, 0, "enough"});
  finish(send);
  one.progress.raise_input(8);
  EXPECT_FALSE(copies.look());
  other.progress.raise_input(8);
  EXPECT_TRUE(copies.look()) << "the other still is";
  EXPECT_EQ(pass(stays).ready, 8u);
}

TEST_F(PassCopiesTest, ThePlaceOfOneThatHasEndedBeginsAnew) {
  const PassId send = begin_send(one);
  one.progress.raise_input(600);
  copies.look();
  mailbox.fail(send, {Errc::cancelled, 0, "enough"});
  finish(send);
  const PassId again = begin_send(other);
  ASSERT_EQ(again, send);
  EXPECT_FALSE(copies.look());
  other.progress.raise_input(8);
  EXPECT_TRUE(copies.look());
  EXPECT_FALSE(has_failed(again)) << pass(again).outcome.text;
  EXPECT_EQ(pass(again).ready, 8u);
}

TEST_F(PassCopiesTest, ARecvThatHasEndedListsNothing) {
  const PassId recv = begin_recv(one);
  mailbox.fail(recv, {Errc::cancelled, 0, "enough"});
  finish(recv);
  copies.deliver(recv, {0, kWakeBytes});
  EXPECT_EQ(one.progress.delivered_records(0), 0u);
  EXPECT_FALSE(one.client.rang);
}

}  // namespace
}  // namespace tern::daemon::pass_copies_test
