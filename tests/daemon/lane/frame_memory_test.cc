#include "daemon/lane/frame_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace tern::daemon {
namespace {

LaneSettings small() {
  LaneSettings settings;
  settings.chunk_bytes = 4096;
  settings.receive_slabs = 6;
  settings.send_slabs = 3;
  settings.result_slabs = 2;
  return settings;
}

struct Owner final : MemoryOwner {
  std::vector<collective::OpId> acked;
  void frame_acked(collective::OpId op) override { acked.push_back(op); }
};

TEST(FrameMemory, AFrameCountsFromItsReservationToItsLastAcknowledgement) {
  FrameMemory memory(small());
  LaneJob job;
  const Cookie cookie = memory.reserve(job, wire::Leg::broadcast);
  EXPECT_EQ(memory.taken().results, 1u);
  EXPECT_EQ(memory.room().results, small().results().all() - 1);
  EXPECT_EQ(job.held.results, 1u);
  const std::uint32_t all = memory.result_slabs().count();
  const std::uint32_t slab = memory.result_slabs().take();
  memory.lend(cookie, 2, {nullptr, collective::kNoSlot, &memory.result_slabs(), slab});
  BorrowedMemory lent;
  EXPECT_FALSE(memory.acked(cookie, lent));
  EXPECT_EQ(memory.result_slabs().free_count(), all - 1);
  EXPECT_TRUE(memory.acked(cookie, lent));
  EXPECT_EQ(memory.result_slabs().free_count(), all);
  EXPECT_EQ(memory.taken().results, 0u);
  EXPECT_EQ(job.held, LaneJob::Held{});
}

TEST(FrameMemory, TheLastAcknowledgementSaysWhoseMemoryWasLent) {
  FrameMemory memory(small());
  LaneJob job;
  Owner owner;
  const Cookie cookie = memory.reserve(job, wire::Leg::reduce);
  memory.lend(cookie, 1, {&owner, 7, nullptr, SlabPool::kNone});
  BorrowedMemory lent;
  ASSERT_TRUE(memory.acked(cookie, lent));
  EXPECT_EQ(lent.owner, &owner);
  EXPECT_EQ(lent.op, 7u);
}

TEST(FrameMemory, AnAccumulatorThatWasLentIsNoLongerTheJobs) {
  FrameMemory memory(small());
  LaneJob job;
  job.held.accumulators = 1;
  const std::uint32_t slab = memory.accumulators().take();
  const Cookie cookie = memory.reserve(job, wire::Leg::broadcast);
  memory.lend(cookie, 1, {nullptr, collective::kNoSlot, &memory.accumulators(), slab});
  BorrowedMemory lent;
  ASSERT_TRUE(memory.acked(cookie, lent));
  EXPECT_EQ(job.held.accumulators, 0u);
  EXPECT_EQ(memory.accumulators().free_count(), memory.accumulators().count());
}

TEST(FrameMemory, WhatIsWithdrawnMayBeReservedAgain) {
  FrameMemory memory(small());
  LaneJob job;
  for (int round = 0; round < 10; ++round) {
    const Cookie a = memory.reserve(job, wire::Leg::broadcast);
    const Cookie b = memory.reserve(job, wire::Leg::broadcast);
    EXPECT_NE(a, b);
    EXPECT_EQ(memory.taken().results, 2u);
    memory.withdraw(a);
    memory.withdraw(b);
  }
  EXPECT_EQ(memory.frames_in_flight(), 0u);
}

TEST(FrameMemory, AJobMayTakeItsShareOfWhatIsFree) {
  FrameMemory memory(small());
  LaneJob job;
  job.weight = 1;
  job.busy_ns = 1;
  LaneJob other = job;
  LaneLoad load;
  load.count(job, 1);
  load.count(other, 1);
  const auto room = memory.room(job, load, 2, 2);
  EXPECT_EQ(room.receive_slabs, 3u);
  EXPECT_EQ(room.results, 1u);
  job.held.results = 1;
  EXPECT_EQ(memory.room(job, load, 2, 2).results, 0u);
  // With many jobs a user has no more than with one.
  other.account = 1000;
  LaneJob third = job;
  third.held = job.held = {};
  load.clear();
  load.several_accounts = true;
  for (const LaneJob* one : {&job, &other, &third}) load.count(*one, 1);
  EXPECT_EQ(memory.room(job, load, 2, 3).receive_slabs, 1u);
  EXPECT_EQ(memory.room(other, load, 2, 3).receive_slabs, 3u);
  // Each job needs three to get on, and all of its user have three.
  EXPECT_EQ(memory.room(job, load, 4, 3).receive_slabs, 3u);
  job.held_beside.receive_slabs = 3;
  EXPECT_EQ(memory.room(job, load, 4, 3).receive_slabs, 0u);
  EXPECT_EQ(memory.room(other, load, 4, 3).receive_slabs, 3u);
  job.held_beside = {};
  // Alone it may take all that jobs share.
  LaneLoad alone;
  alone.count(job, 1);
  EXPECT_EQ(memory.room(job, alone, 2, 1).receive_slabs, 6u);
}

// Whose members begin frames and never end them holds slabs for as long as he likes.
TEST(FrameMemory, WhoTookAllWhenHeWasAloneLeavesRoomForWhoComesLater) {
  constexpr std::uint32_t kNodes = collective::kMaxNodes;
  FrameMemory memory(LaneSettings{});
  LaneJob hoarder;
  hoarder.account = 1;
  hoarder.busy_ns = 1;
  LaneLoad load;
  load.count(hoarder, 1);
  const collective::Room all = memory.room(hoarder, load, 2, 1);
  EXPECT_EQ(all.receive_slabs, LaneSettings{}.receive_slabs);
  const auto take = [&memory](LaneJob& job, const collective::Room& room) {
    for (std::uint32_t i = 0; i < room.receive_slabs; ++i) memory.receive_slabs().take();
    for (std::uint32_t i = 0; i < room.accumulators; ++i) memory.accumulators().take();
    for (std::uint32_t i = 0; i < room.contributions; ++i) memory.reserve(job, wire::Leg::reduce);
    for (std::uint32_t i = 0; i < room.results; ++i) memory.reserve(job, wire::Leg::broadcast);
    job.held.receive_slabs += room.receive_slabs;
    job.held.accumulators += room.accumulators;
  };
  take(hoarder, all);
  EXPECT_EQ(memory.room(hoarder, load, 2, 1).receive_slabs, 0u);
  LaneJob late = hoarder;
  late.account = 2;
  late.held = {};
  load.count(late, 1);
  load.several_accounts = true;
  EXPECT_EQ(memory.room(hoarder, load, 2, 2).receive_slabs, 0u);
  EXPECT_GE(memory.room(late, load, kNodes, 2).receive_slabs, kNodes - 1);
  const collective::Room open = memory.room(late, load, 2, 2);
  for (const std::uint32_t count :
       {open.receive_slabs, open.accumulators, open.contributions, open.results}) {
    EXPECT_GE(count, 4u);
  }
  // And so does the next.
  take(late, open);
  LaneJob latest = late;
  latest.account = 3;
  latest.held = {};
  load.count(latest, 1);
  const collective::Room rest = memory.room(latest, load, 2, 3);
  for (const std::uint32_t count :
       {rest.receive_slabs, rest.accumulators, rest.contributions, rest.results}) {
    EXPECT_GE(count, 1u);
  }
}

}  // namespace
}  // namespace tern::daemon
