#include "collective/schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace tern::collective {
namespace {

Op op_of(std::int32_t priority, std::uint64_t order) {
  Op op;
  op.priority = priority;
  op.order = order;
  return op;
}

std::vector<OpId> running(const Schedule& schedule) {
  std::vector<OpId> ids;
  for (const auto& row : schedule.running()) ids.push_back(row.id);
  return ids;
}

bool nothing_in_flight(OpId) { return false; }
bool any(OpId) { return true; }

TEST(Schedule, ListsAreServedInOrderAndAnOpIsInThemOnce) {
  Schedule schedule(8);
  for (const OpId id : {3u, 1u, 3u, 2u}) schedule.announce(id);
  const auto not_the_third = [](OpId id) { return id != 3; };
  EXPECT_EQ(schedule.take_announce(not_the_third), 1u);
  EXPECT_EQ(schedule.take_announce(any), 3u);
  EXPECT_EQ(schedule.take_announce(any), 2u);
  EXPECT_EQ(schedule.take_announce(any), kNoSlot);
}

TEST(Schedule, HigherPrioritiesRunFirstThenOlderOps) {
  Schedule schedule(8);
  schedule.run(0, op_of(0, 5));
  schedule.run(1, op_of(2, 7));
  schedule.run(2, op_of(0, 3));
  schedule.run(3, op_of(2, 6));
  EXPECT_EQ(running(schedule), (std::vector<OpId>{3, 1, 2, 0}));
  schedule.run_last(4, op_of(9, 0));
  EXPECT_EQ(running(schedule), (std::vector<OpId>{3, 1, 2, 0, 4}));
  schedule.stop(1);
  EXPECT_EQ(running(schedule), (std::vector<OpId>{3, 2, 0, 4}));
}

TEST(Schedule, CompletesTheFirstWithNothingInFlight) {
  Schedule schedule(8);
  for (const OpId id : {1u, 2u, 3u}) schedule.complete(id);
  EXPECT_EQ(schedule.take_complete([](OpId id) { return id != 2; }), 2u);
  EXPECT_EQ(schedule.take_complete([](OpId) { return true; }), kNoSlot);
  EXPECT_EQ(schedule.take_complete(nothing_in_flight), 1u);
  EXPECT_EQ(schedule.take_complete(nothing_in_flight), 3u);
  EXPECT_EQ(schedule.take_complete(nothing_in_flight), kNoSlot);
}

TEST(Schedule, AFailedOpIsOnlyToldAndCompleted) {
  Schedule schedule(8);
  schedule.announce(1);
  schedule.tell_submitted(1);
  schedule.run(1, op_of(0, 0));
  schedule.fail_remote(1);
  schedule.complete(1);
  schedule.drop(1);
  EXPECT_EQ(schedule.take_announce(any), kNoSlot);
  EXPECT_EQ(schedule.take_tell_submitted(), kNoSlot);
  EXPECT_TRUE(schedule.running().empty());
  EXPECT_EQ(schedule.take_fail_remote(), 1u);
  EXPECT_EQ(schedule.take_complete(nothing_in_flight), 1u);
}

TEST(Schedule, NobodyIsToldOfFailuresAfterTheEnd) {
  Schedule schedule(8);
  schedule.fail_remote(1);
  schedule.tell_no_failures();
  EXPECT_EQ(schedule.take_fail_remote(), kNoSlot);
}

}  // namespace
}  // namespace tern::collective
