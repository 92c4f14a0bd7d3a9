#include "daemon/conductor/kept_states.h"

#include <gtest/gtest.h>

#include <latch>

namespace tern::daemon {
namespace {

class KeptStatesTest : public ::testing::Test {
 protected:
  KeptStatesTest() {
    group_.uid = "0123456789abcdef";
    group_.account = 1000;
    settings_.tensors.state_ttl_ns = 1'000;
  }
  // A tensor with error feedback in which an op has left something.
  DeclaredTensor tensor(std::uint64_t count = 100) {
    DeclaredTensor made;
    made.state = std::make_shared<TensorState>();
    made.state->name = "w";
    codec::Recipe recipe;
    EXPECT_TRUE(codec::parse_recipe_quick("ef(3lc:s=1)", recipe));
    EXPECT_TRUE(
        made.state->codec.allocate(recipe, {.count = count, .chunk_elements = 64, .nodes = 2}));
    return made;
  }
  DeclaredTensor used_tensor() {
    DeclaredTensor made = tensor();
    made.state->lanes[0].state_touched = true;
    made.state->codec.sender(0)[3] = 1.5f;
    return made;
  }

  ManualClock clock_;
  ConductorSettings settings_;
  MemberGroup group_;
  Disposal disposal_{Disposal::By::caller};
  KeptStates kept_{settings_, clock_, disposal_};
  const std::string key_ = KeptStates::key_of(1000, {"job"}, "w");
};

TEST_F(KeptStatesTest, TheNextDeclarationTakesThemOver) {
  DeclaredTensor first = used_tensor();
  EXPECT_FALSE(kept_.adopt(group_, key_, first));
  EXPECT_EQ(first.state_key, key_);
  kept_.keep(group_, first);
  EXPECT_EQ(kept_.bytes_of(key_, 1000), first.state->state_bytes());
  EXPECT_EQ(kept_.bytes_of_user(1000), first.state->state_bytes());
  EXPECT_EQ(kept_.bytes_of_user(1001), 0u);
  DeclaredTensor second = tensor();
  EXPECT_FALSE(kept_.adopt(group_, key_, second));
  EXPECT_EQ(second.state->codec.sender(0)[3], 1.5f);
  EXPECT_EQ(kept_.bytes_of(key_, 1000), 0u);
  EXPECT_EQ(kept_.bytes_of_user(1000), 0u);
}

TEST_F(KeptStatesTest, OfAnotherLayoutAreAReset) {
  DeclaredTensor first = used_tensor();
  kept_.adopt(group_, key_, first);
  kept_.keep(group_, first);
  DeclaredTensor larger = tensor(200);
  EXPECT_TRUE(kept_.adopt(group_, key_, larger));
}

// The residual of a share is at the node of its rank: on another node it would be of nothing.
TEST_F(KeptStatesTest, OfSharesWhoseRanksHaveMovedAreAReset) {
  for (const bool one_leg : {false, true}) {
    group_.ranks_of_node = {{0, 1}, {2}};
    DeclaredTensor first = used_tensor();
    ASSERT_TRUE(first.state->memory_use.take({.kind = 7, .one_leg = one_leg}));
    kept_.adopt(group_, key_, first);
    kept_.keep(group_, first);
    DeclaredTensor same = tensor();
    EXPECT_FALSE(kept_.adopt(group_, key_, same));
    EXPECT_EQ(same.state->codec.sender(0)[3], 1.5f);
    same.state->lanes[0].state_touched = true;
    kept_.keep(group_, same);
    group_.ranks_of_node = {{0, 2}, {1}};
    DeclaredTensor moved = tensor();
    EXPECT_EQ(kept_.adopt(group_, key_, moved), one_leg);
    EXPECT_EQ(moved.state->codec.sender(0)[3], one_leg ? 0.0f : 1.5f);
    settings_.tensors.state_ttl_ns = 0;
    kept_.keep(group_, moved);
    settings_.tensors.state_ttl_ns = 1'000;
  }
}

TEST_F(KeptStatesTest, ThatAreInDoubtAreAReset) {
  DeclaredTensor first = used_tensor();
  kept_.adopt(group_, key_, first);
  first.state->doubtful = true;
  kept_.keep(group_, first);
  DeclaredTensor second = tensor();
  EXPECT_TRUE(kept_.adopt(group_, key_, second));
  EXPECT_EQ(second.state->codec.sender(0)[3], 0.0f);
}

TEST_F(KeptStatesTest, OneDeclarationAtATimeHasTheKey) {
  DeclaredTensor first = tensor(), second = tensor();
  EXPECT_FALSE(kept_.adopt(group_, key_, first));
  EXPECT_FALSE(kept_.adopt(group_, key_, second));
  EXPECT_TRUE(second.state_key.empty());
  kept_.keep(group_, first);
  DeclaredTensor third = tensor();
  EXPECT_FALSE(kept_.adopt(group_, key_, third));
  EXPECT_EQ(third.state_key, key_);
}

TEST_F(KeptStatesTest, ThatExpireAreLostAndKnownToBe) {
  DeclaredTensor first = used_tensor();
  kept_.adopt(group_, key_, first);
  kept_.keep(group_, first);
  EXPECT_TRUE(kept_.expire(clock_.now_ns() + 999, TimeSlice(clock_, 1)));
  EXPECT_NE(kept_.bytes_of(key_, 1000), 0u);
  EXPECT_TRUE(kept_.expire(clock_.now_ns() + 1'000, TimeSlice(clock_, 1)));
  EXPECT_EQ(kept_.bytes_of(key_, 1000), 0u);
  EXPECT_EQ(kept_.bytes_of_user(1000), 0u);
  DeclaredTensor second = tensor(), third = tensor();
  EXPECT_TRUE(kept_.adopt(group_, key_, second));
  // It is told once.
  kept_.keep(group_, second);
  EXPECT_FALSE(kept_.adopt(group_, key_, third));
}

// The clock of a test stands still: a slice is over at once, or never.
TEST_F(KeptStatesTest, ExpireInSlices) {
  for (const char* name : {"a", "b", "c"}) {
    DeclaredTensor one = tensor();
    kept_.adopt(group_, KeptStates::key_of(1000, {"job"}, name), one);
    kept_.keep(group_, one);
  }
  const std::uint64_t each = kept_.bytes() / 3;
  EXPECT_FALSE(kept_.expire(clock_.now_ns() + 1'000, TimeSlice(clock_, 0)));
  EXPECT_EQ(kept_.bytes(), 2 * each);
  EXPECT_TRUE(kept_.expire(clock_.now_ns() + 1'000, TimeSlice(clock_, 1)));
  EXPECT_EQ(kept_.bytes(), 0u);
}

// To free it would take the conductor long.
TEST_F(KeptStatesTest, OfManyBytesIsFreedByTheDisposalAndChargedMeanwhile) {
  std::latch begun(1), may_end(1);
  Disposal disposal;  // its thread ends before the latches do
  KeptStates kept(settings_, clock_, disposal);
  disposal.take(group_.account, [&] {
    begun.count_down();
    may_end.wait();
    return false;
  });
  begun.wait();
  std::uint64_t bytes = 0;
  {
    DeclaredTensor large = tensor(8 << 20);
    bytes = large.state->state_bytes();
    kept.adopt(group_, key_, large);
    kept.keep(group_, large);
  }
  ASSERT_GE(bytes, TensorState::kMuchState);
  kept.expire(clock_.now_ns() + 1'000, TimeSlice(clock_, 1));
  EXPECT_EQ(kept.bytes(), 0u);
  EXPECT_EQ(disposal.count(), 2u);
  EXPECT_EQ(disposal.bytes_of(group_.account), bytes);
  may_end.count_down();
}

TEST_F(KeptStatesTest, OfAnAccountTheNewestAreKept) {
  settings_.limits.max_tensors_per_user = 3;
  MemberGroup of_another;
  of_another.uid = "fedcba9876543210";
  of_another.account = 1001;
  DeclaredTensor foreign = used_tensor();
  kept_.adopt(of_another, "foreign", foreign);
  kept_.keep(of_another, foreign);
  for (int number = 0; number < 5; ++number) {
    clock_.advance_ns(1);
    DeclaredTensor one = used_tensor();
    one.state->name = std::to_string(number);
    EXPECT_FALSE(kept_.adopt(group_, one.state->name, one));
    kept_.keep(group_, one);
  }
  const std::uint64_t bytes = foreign.state->state_bytes();
  for (const char* gone : {"0", "1"}) EXPECT_EQ(kept_.bytes_of(gone, 1000), 0u) << gone;
  for (const char* kept : {"2", "3", "4"}) EXPECT_EQ(kept_.bytes_of(kept, 1000), bytes) << kept;
  EXPECT_EQ(kept_.bytes_of("foreign", 1001), bytes);
  EXPECT_EQ(kept_.bytes_of("foreign", 1000), 0u) << "it makes no room there";
  EXPECT_EQ(kept_.bytes_of_user(1000), 3 * bytes);
  EXPECT_EQ(kept_.bytes(), 4 * bytes);
  DeclaredTensor again = tensor();
  again.state->name = "0";
  EXPECT_TRUE(kept_.adopt(group_, "0", again)) << "it is known that something was lost";
}

TEST_F(KeptStatesTest, WithoutATimeToLiveNothingIsKept) {
  settings_.tensors.state_ttl_ns = 0;
  DeclaredTensor first = used_tensor();
  kept_.adopt(group_, key_, first);
  kept_.keep(group_, first);
  EXPECT_EQ(kept_.bytes_of(key_, 1000), 0u);
  MemberGroup other;
  other.uid = "another";
  other.account = 1000;
  DeclaredTensor elsewhere = tensor(), here = tensor();
  EXPECT_FALSE(kept_.adopt(other, key_, elsewhere));
  EXPECT_TRUE(kept_.adopt(group_, key_, here));
}

TEST_F(KeptStatesTest, WhatHasNoHistoryIsNotMissed) {
  settings_.tensors.state_ttl_ns = 0;
  DeclaredTensor first = tensor(), second = tensor();
  kept_.adopt(group_, key_, first);
  kept_.keep(group_, first);
  EXPECT_FALSE(kept_.adopt(group_, key_, second));
}

}  // namespace
}  // namespace tern::daemon
