#include "daemon/service/turn_meter.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

namespace tern::daemon {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kBudget = 10 * kMs;

class TurnMeterTest : public ::testing::Test {
 protected:
  TurnMeterTest() { meter_.count_in(counters_); }

  virtual void work_for(std::uint64_t ns) { clock_.advance_ns(ns); }
  // A turn of one step.
  TurnMeter::Turn turn_of(std::uint64_t ns, bool has_worked = true) {
    meter_.begin("work");
    work_for(ns);
    return meter_.end(clock_.now_ns(), has_worked);
  }
  std::uint64_t counted() const {
    std::uint64_t turns = 0;
    for (const TurnBucket& bucket : kTurnBuckets) turns += (counters_.*bucket.turns).load();
    return turns;
  }

  ManualClock clock_;
  TurnCounters counters_;
  TurnMeter meter_{clock_, kBudget};
};

TEST_F(TurnMeterTest, NamesTheStepThatTookLongest) {
  meter_.begin("links");
  clock_.advance_ns(kMs);
  meter_.step("on_group_join");
  clock_.advance_ns(12 * kMs);
  meter_.step("commands");
  clock_.advance_ns(2 * kMs);
  const TurnMeter::Turn turn = meter_.end();
  EXPECT_STREQ(turn.step, "on_group_join");
  EXPECT_EQ(turn.ns, 15 * kMs);
  EXPECT_TRUE(turn.is_too_long);
  EXPECT_EQ(turn_text("conductor", turn), "conductor turn of 15 ms in on_group_join");
}

TEST_F(TurnMeterTest, StepsOfOneNameThatFollowEachOtherAreOne) {
  const char* const packet = "on_packet";
  meter_.begin("links");
  clock_.advance_ns(3 * kMs);
  for (int i = 0; i < 2; ++i) {
    meter_.step(packet);
    clock_.advance_ns(2 * kMs);
  }
  EXPECT_STREQ(meter_.end().step, "on_packet");
}

TEST_F(TurnMeterTest, AStepForWhichTheThreadWakesBeginsTheTurn) {
  turn_of(kMs);
  clock_.advance_ns(500 * kMs);  // asleep
  meter_.step("on_packet");
  clock_.advance_ns(kMs);
  meter_.begin("loop");
  clock_.advance_ns(kMs);
  EXPECT_EQ(meter_.end().ns, 2 * kMs);
  EXPECT_EQ(meter_.last().ns, 2 * kMs);
}

TEST_F(TurnMeterTest, CountsEachTurnInTheFirstBucketThatHasRoom) {
  turn_of(0);
  turn_of(100'000);
  turn_of(100'001);
  turn_of(20 * kMs);
  turn_of(5'000 * kMs);
  EXPECT_EQ(counters_.turns_100us.load(), 2u);
  EXPECT_EQ(counters_.turns_250us.load(), 1u);
  EXPECT_EQ(counters_.turns_20ms.load(), 1u);
  EXPECT_EQ(counters_.turns_longer.load(), 1u);
  EXPECT_EQ(counted(), 5u);
  EXPECT_EQ(counters_.turn_ns.load(), 200'001 + 5'020 * kMs);
  EXPECT_EQ(counters_.turns_over_budget.load(), 2u);
}

TEST_F(TurnMeterTest, ATurnWithoutWorkCountsOnlyIfItWasLong) {
  turn_of(100'000, false);
  EXPECT_EQ(counted(), 0u);
  turn_of(12 * kMs, false);
  EXPECT_EQ(counted(), 1u);
  EXPECT_EQ(counters_.turns_over_budget.load(), 1u);
}

TEST_F(TurnMeterTest, WhatIsAllowedBesideTheBudgetIsOfOneTurn) {
  meter_.begin("chunks");
  clock_.advance_ns(15 * kMs);
  meter_.allow(5 * kMs);
  EXPECT_FALSE(meter_.end().is_too_long);
  EXPECT_TRUE(turn_of(15 * kMs).is_too_long);
}

TEST_F(TurnMeterTest, ShowsTheLongestAndTheLastThatWasTooLong) {
  turn_of(30 * kMs);
  meter_.begin("other");
  clock_.advance_ns(20 * kMs);
  meter_.end();
  turn_of(kMs);
  EXPECT_EQ(meter_.longest().ns, 30 * kMs);
  EXPECT_STREQ(meter_.longest().step, "work");
  EXPECT_EQ(meter_.last_too_long().ns, 20 * kMs);
  EXPECT_STREQ(meter_.last_too_long().step, "other");
}

// Says what the test lets happen to the thread.
class KnownWait : public ProcessorWait {
 public:
  Times times() noexcept override {
    if (const auto happens = std::exchange(before_answer, nullptr)) happens();
    return now;
  }
  std::uint64_t sleeps() noexcept override { return now.sleeps; }
  Times now;
  std::function<void()> before_answer;  // once
};

class TurnMeterWaits : public TurnMeterTest {
 protected:
  TurnMeterWaits() { meter_.subtract(processor_); }

  // The thread waits for a processor.
  void wait_for(std::uint64_t ns) {
    processor_.now.waited_ns += ns;
    clock_.advance_ns(ns);
  }
  void run_for(std::uint64_t ns) {
    processor_.now.run_ns += ns;
    clock_.advance_ns(ns);
  }
  void be_asleep_for(std::uint64_t ns) {
    ++processor_.now.sleeps;
    clock_.advance_ns(ns);
  }
  // Of the processor, of which the kernel knows nothing.
  void be_robbed_for(std::uint64_t ns) { clock_.advance_ns(ns); }
  void work_for(std::uint64_t ns) override { run_for(ns); }

  KnownWait processor_;
};

TEST_F(TurnMeterWaits, AreNotOfTheTurn) {
  meter_.begin("work");
  run_for(4 * kMs);
  wait_for(30 * kMs);
  const TurnMeter::Turn turn = meter_.end();
  EXPECT_EQ(turn.ns, 4 * kMs);
  EXPECT_FALSE(turn.is_too_long);
}

TEST_F(TurnMeterWaits, BeforeTheTurnHideNothingOfIt) {
  turn_of(0);
  wait_for(500 * kMs);  // after waking
  EXPECT_EQ(turn_of(30 * kMs).ns, 30 * kMs);
  // Asked a moment ago, it does not ask again before the turn.
  wait_for(kMs / 2);
  EXPECT_EQ(turn_of(30 * kMs).ns, 30 * kMs);
}

TEST_F(TurnMeterWaits, OfMoreThanOneTurnAreTakenFromNone) {
  for (int i = 0; i < 100; ++i) {
    meter_.begin("work");
    wait_for(kMs / 4);
    meter_.end();
    EXPECT_EQ(turn_of(12 * kMs).ns, 12 * kMs);
  }
}

// What was waited between the last question and the turn is at most the time between: so much too
// little may be subtracted.
TEST_F(TurnMeterWaits, AreMissedForLessThanAMillisecond) {
  turn_of(2 * kMs);
  be_asleep_for(kMs - 1);
  meter_.begin("work");
  run_for(kMs / 2);
  be_asleep_for(kMs / 2);
  wait_for(20 * kMs);
  EXPECT_EQ(meter_.end().ns, 2 * kMs - 1);
}

TEST_F(TurnMeterWaits, AfterAPauseAreNotOfTheTurn) {
  for (int i = 0; i < 3; ++i) {
    meter_.pause(clock_.now_ns());
    be_asleep_for(500 * kMs);
    wait_for(20 * kMs);  // on waking
    meter_.begin("work");
    run_for(4 * kMs);
    wait_for(30 * kMs);
    EXPECT_EQ(meter_.end().ns, 4 * kMs);
  }
}

// Short turns since the question ran; this one has waited.
TEST_F(TurnMeterWaits, AreToldFromTheTurnsSinceAPause) {
  clock_.advance_ns(10 * kMs);
  meter_.pause(clock_.now_ns());
  for (int i = 0; i < 5; ++i) {
    meter_.begin("work");
    run_for(kMs / 2);
    meter_.end();
    clock_.advance_ns(kMs);
    meter_.pause(clock_.now_ns());
  }
  meter_.begin("work");
  run_for(3 * kMs);
  wait_for(30 * kMs);
  EXPECT_EQ(meter_.end().ns, 3 * kMs);
}

TEST_F(TurnMeterWaits, DoNotHideWhatRuns) {
  clock_.advance_ns(10 * kMs);
  meter_.pause(clock_.now_ns());
  wait_for(20 * kMs);  // on waking
  meter_.begin("work");
  run_for(30 * kMs);
  EXPECT_EQ(meter_.end().ns, 30 * kMs);
}

TEST_F(TurnMeterWaits, BeforeATurnThatOnlySleptHideNoMoreThanThemselves) {
  clock_.advance_ns(10 * kMs);
  meter_.pause(clock_.now_ns());
  be_asleep_for(500 * kMs);
  wait_for(7 * kMs);
  meter_.begin("work");
  be_asleep_for(30 * kMs);  // in a system call
  EXPECT_EQ(meter_.end().ns, 23 * kMs);
  clock_.advance_ns(10 * kMs);
  EXPECT_EQ(turn_of(30 * kMs).ns, 30 * kMs);
}

// A hypervisor may give the processor to another machine.
TEST_F(TurnMeterWaits, OfTheWholeMachineAreNotOfTheTurn) {
  be_asleep_for(5 * kMs);
  meter_.begin("work");
  run_for(4 * kMs);
  be_robbed_for(20 * kMs);
  wait_for(3 * kMs);
  EXPECT_EQ(meter_.end().ns, 4 * kMs);
}

// A thread with much to do sleeps between turns for which it does not ask.
TEST_F(TurnMeterWaits, OfTheWholeMachineRightAfterASleepAreNotOfTheTurn) {
  turn_of(2 * kMs);
  for (int i = 0; i < 3; ++i) {
    be_asleep_for(kMs / 10);
    turn_of(kMs / 10);
  }
  be_asleep_for(kMs / 10);
  meter_.begin("work");
  run_for(4 * kMs);
  be_robbed_for(20 * kMs);
  EXPECT_LE(meter_.end().ns, 4 * kMs + kMs);
}

TEST_F(TurnMeterWaits, WhileTheKernelIsAskedAfterAPauseAreNotOfTheTurn) {
  meter_.pause(clock_.now_ns());
  be_asleep_for(500 * kMs);
  meter_.begin("work");
  run_for(4 * kMs);
  processor_.before_answer = [this] { wait_for(12 * kMs); };
  EXPECT_EQ(meter_.end().ns, 4 * kMs);
}

TEST_F(TurnMeterWaits, OfTheWholeMachineAfterAPauseAreNotOfTheTurn) {
  for (int i = 0; i < 3; ++i) {
    meter_.pause(clock_.now_ns());
    be_asleep_for(500 * kMs);
    meter_.begin("work");
    run_for(4 * kMs);
    be_robbed_for(20 * kMs);
    EXPECT_EQ(meter_.end().ns, 4 * kMs);
  }
}

// Who sleeps in a turn has not lost its machine: a system call took so long.
TEST_F(TurnMeterWaits, OfTheWholeMachineHideNoSleep) {
  for (const bool pauses : {false, true}) {
    if (pauses) meter_.pause(clock_.now_ns());
    be_asleep_for(5 * kMs);
    meter_.begin("work");
    be_asleep_for(30 * kMs);
    EXPECT_EQ(meter_.end().ns, 30 * kMs) << pauses;
  }
}

// Nor where turns before it, since the question, did not sleep.
TEST_F(TurnMeterWaits, OfTheWholeMachineHideNoSleepAfterTurnsWithoutOne) {
  turn_of(2 * kMs);
  for (int i = 0; i < 5; ++i) turn_of(kMs / 10);
  meter_.begin("work");
  be_asleep_for(30 * kMs);
  EXPECT_EQ(meter_.end().ns, 30 * kMs);
}

}  // namespace
}  // namespace tern::daemon
