#include "daemon/lane/copy_watch.h"

#include <gtest/gtest.h>

#include <array>

#include "group_rig.h"

namespace tern::daemon::copy_watch_test {
namespace {

using collective::OpId;
using group_test::kChunk;
using group_test::kSecond;
using group_test::Spec;

constexpr std::uint64_t kBytes = 4 * kChunk * sizeof(float);

// An op of four chunks whose input is still being copied.
class CopyWatchTest : public group_test::OneNode {
 protected:
  explicit CopyWatchTest(shm::OpKind kind = shm::OpKind::all_reduce, std::uint8_t flags = 0) {
    Spec spec;
    spec.count = 4 * kChunk;
    spec.kind = kind;
    op = node.begin(spec);
    shm::SubmitEntry entry{};
    entry.flags = static_cast<std::uint8_t>(shm::kEntryHasProgress | flags);
    entry.progress_records = kShape.records;
    watch.begin({op, 0}, entry, one_client(memory, arena));
  }
  const collective::Op& about() const { return node.core.op(op); }

  static LaneClient one_client(ClientMemory& memory, const Region& arena) {
    LaneClient client;
    client.memory = &memory;
    client.arena = arena;
    return client;
  }

  static constexpr shm::CopyProgress::Shape kShape{1, 2};
  ClientMemory memory;
  alignas(64) std::array<std::byte, kShape.bytes()> block{};
  Region arena{block.data(), block.size()};
  shm::CopyProgress client{block.data(), kShape};
  CopyWatch watch{node.core};
  OpId op = collective::kNoSlot;
};

TEST_F(CopyWatchTest, AChunkIsThereWithItsLastElement) {
  EXPECT_FALSE(watch.has(op, 0));
  client.raise_input(2 * kChunk * sizeof(float) - 1);
  EXPECT_FALSE(watch.has(op, 0)) << "nobody has looked";
  EXPECT_TRUE(watch.look());
  EXPECT_TRUE(watch.has(op, 0));
  EXPECT_FALSE(watch.has(op, 1));
  EXPECT_FALSE(watch.has_all(op));
  EXPECT_FALSE(watch.look()) << "nothing has moved";
  client.raise_input(kBytes);
  EXPECT_TRUE(watch.look());
  EXPECT_TRUE(watch.has(op, 3));
  EXPECT_TRUE(watch.has_all(op));
  client.raise_input(0);
  EXPECT_FALSE(watch.look()) << "an input that is there is not looked at again";
  EXPECT_FALSE(about().failed());
}

TEST_F(CopyWatchTest, WhatIsKnownDoesNotChangeUnderAnAction) {
  client.raise_input(kBytes / 2);
  watch.look();
  client.raise_input(0);
  EXPECT_TRUE(watch.has(op, 1));
}

TEST_F(CopyWatchTest, AWatermarkThatLiesFailsItsOp) {
  client.raise_input(kBytes + 1);
  watch.look();
  EXPECT_TRUE(about().failed());
  EXPECT_EQ(about().status, Errc::invalid_argument);
  EXPECT_STREQ(about().text, "rank 0: the watermark of its input says 4097 of 4096 bytes, after 0");
}

TEST_F(CopyWatchTest, OneThatStandsStillFailsAfterTheTimeout) {
  world.clock.advance_ns(kSecond);
  client.raise_input(8);
  watch.expire(world.clock.now_ns(), kSecond);
  EXPECT_FALSE(about().failed()) << "it has moved";
  world.clock.advance_ns(kSecond);
  watch.expire(world.clock.now_ns(), kSecond);
  EXPECT_EQ(about().status, Errc::op_timeout);
  EXPECT_STREQ(about().text, "rank 0: for 1000 ms its input has stopped at 8 of 4096 bytes");
}

// The lane has read its clock before it looks.
TEST_F(CopyWatchTest, OneThatHasJustMovedStandsNotStill) {
  const std::uint64_t now_ns = world.clock.now_ns();
  world.clock.advance_ns(1);
  client.raise_input(8);
  watch.expire(now_ns, kSecond);
  EXPECT_FALSE(about().failed()) << about().text;
}

class ByShares : public CopyWatchTest {
 protected:
  ByShares() : CopyWatchTest(shm::OpKind::reduce_scatter, shm::kEntrySharesDown) {}
};

// Chunk number `round * 2 + rank`; this is rank 0.
TEST_F(ByShares, WhatOtherRanksGetIsThereFirst) {
  client.raise_input(kChunk * sizeof(float));
  watch.look();
  EXPECT_TRUE(watch.has(op, 1));
  EXPECT_FALSE(watch.has(op, 3));
  EXPECT_FALSE(watch.has(op, 0));
  client.raise_input(3 * kChunk * sizeof(float) - 1);
  watch.look();
  EXPECT_TRUE(watch.has(op, 3));
  EXPECT_FALSE(watch.has(op, 0));
  client.raise_input(3 * kChunk * sizeof(float));
  watch.look();
  EXPECT_TRUE(watch.has(op, 0));
  EXPECT_FALSE(watch.has(op, 2));
}

// Two ops of a batch, of which the client copies one after the other.
class CopyWatchOfABatch : public CopyWatchTest {
 protected:
  CopyWatchOfABatch() {
    Spec spec;
    spec.tensor = 4;
    spec.count = 4 * kChunk;
    second = node.begin(spec);
    shm::SubmitEntry entry{};
    entry.flags = shm::kEntryHasProgress;
    entry.progress_records = kShape.records;
    watch.begin({second, 0}, entry, one_client(memory, second_arena));
  }
  void pass(std::uint64_t ns) {
    world.clock.advance_ns(ns);
    watch.expire(world.clock.now_ns(), kSecond);
  }
  const collective::Op& of_second() const { return node.core.op(second); }

  alignas(64) std::array<std::byte, kShape.bytes()> second_block{};
  Region second_arena{second_block.data(), second_block.size()};
  shm::CopyProgress second_client{second_block.data(), kShape};
  OpId second = collective::kNoSlot;
};

TEST_F(CopyWatchOfABatch, OneThatWaitsForTheFirstDoesNotStandStill) {
  for (std::uint64_t bytes = 8; bytes < kBytes; bytes += kBytes / 4) {
    client.raise_input(bytes);
    pass(kSecond - 1);
  }
  EXPECT_FALSE(of_second().failed()) << of_second().text;
  client.raise_input(kBytes);
  pass(kSecond - 1);
  pass(kSecond - 1);
  EXPECT_FALSE(of_second().failed()) << "its copy has just begun: " << of_second().text;
  pass(1);
  EXPECT_STREQ(of_second().text, "rank 0: for 1000 ms its input has stopped at 0 of 4096 bytes");
  EXPECT_FALSE(about().failed());
}

TEST_F(CopyWatchOfABatch, BothStandStillWithTheFirst) {
  client.raise_input(8);
  pass(kSecond - 1);
  pass(kSecond);
  EXPECT_EQ(about().status, Errc::op_timeout);
  EXPECT_EQ(of_second().status, Errc::op_timeout);
}

TEST_F(CopyWatchOfABatch, OneThatHasBegunHasAClockOfItsOwn) {
  second_client.raise_input(8);
  watch.look();
  pass(kSecond / 2);
  client.raise_input(8);
  pass(kSecond / 2);
  EXPECT_EQ(of_second().status, Errc::op_timeout);
  EXPECT_FALSE(about().failed());
}

// Another lane has seen that the client copies, for an op of its own.
TEST_F(CopyWatchOfABatch, WhatAnotherLaneSeesOfTheClientCounts) {
  for (int i = 0; i < 3; ++i) {
    memory.copied_ns = world.clock.now_ns();
    pass(kSecond - 1);
  }
  EXPECT_FALSE(about().failed()) << about().text;
  pass(1);
  EXPECT_EQ(about().status, Errc::op_timeout);
  EXPECT_EQ(of_second().status, Errc::op_timeout);
}

TEST_F(CopyWatchOfABatch, TheOtherLanesLearnThatTheClientCopies) {
  world.clock.advance_ns(kSecond);
  client.raise_input(8);
  watch.look();
  EXPECT_EQ(memory.copied_ns, world.clock.now_ns());
}

TEST_F(CopyWatchOfABatch, ThatOfTheSecondBeginsWhenTheFirstHasFailed) {
  world.clock.advance_ns(kSecond - 1);
  client.raise_input(kBytes + 1);
  watch.look();
  ASSERT_TRUE(about().failed());
  pass(kSecond - 1);
  EXPECT_FALSE(of_second().failed()) << of_second().text;
  pass(1);
  EXPECT_EQ(of_second().status, Errc::op_timeout);
}

TEST_F(CopyWatchTest, DeliveriesAreListedWhileThereIsRoom) {
  LaneClient one;
  const std::vector<LaneClient*> clients{&one};
  watch.deliver(op, {kChunk, kChunk}, clients);
  ASSERT_EQ(client.delivered_records(0), 1u);
  EXPECT_EQ(client.record(0, 0).offset, kChunk * sizeof(float));
  EXPECT_EQ(client.record(0, 0).bytes, kChunk * sizeof(float));
  EXPECT_FALSE(one.rang) << "for so little nobody is woken";
  for (int i = 0; i < 3; ++i) watch.deliver(op, {0, kChunk}, clients);
  EXPECT_EQ(client.delivered_records(0), 2u);
}

}  // namespace
}  // namespace tern::daemon::copy_watch_test
