#include "base/time_slice.h"

#include <gtest/gtest.h>

namespace tern {
namespace {

TEST(TimeSlice, IsOverWhenItsTimeHasPassed) {
  ManualClock clock;
  const TimeSlice slice(clock, 100);
  EXPECT_FALSE(slice.is_over());
  clock.advance_ns(99);
  EXPECT_FALSE(slice.is_over());
  clock.advance_ns(1);
  EXPECT_TRUE(slice.is_over());
}

TEST(TimeSlice, BeginsWhenItIsMade) {
  ManualClock clock;
  clock.advance_ns(1'000);
  const TimeSlice slice(clock, 100);
  clock.advance_ns(50);
  EXPECT_FALSE(slice.is_over());
}

TEST(LateTimeSlice, BeginsAtTheFirstQuestion) {
  ManualClock clock;
  LateTimeSlice slice(clock, 100);
  clock.advance_ns(1'000);
  EXPECT_FALSE(slice.is_over());
  clock.advance_ns(99);
  EXPECT_FALSE(slice.is_over());
  clock.advance_ns(1);
  EXPECT_TRUE(slice.is_over());
}

TEST(LateTimeSlice, OfNoTimeIsOverAtTheFirstQuestion) {
  ManualClock clock;
  LateTimeSlice slice(clock, 0);
  EXPECT_TRUE(slice.is_over());
}

}  // namespace
}  // namespace tern
