#include "daemon/lane/idle_pages.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

constexpr std::uint64_t kKeepNs = 100;

TEST(IdlePages, UntouchedPagesAreNeverDue) {
  IdlePages pages;
  EXPECT_FALSE(pages.due(1000, false, kKeepNs));
  EXPECT_EQ(pages.deadline_ns(), 0u);
}

TEST(IdlePages, AreDueAfterTheTimeUntilTheyAreDropped) {
  IdlePages pages;
  pages.touch();
  EXPECT_FALSE(pages.due(1000, false, kKeepNs));
  EXPECT_EQ(pages.deadline_ns(), 1100u);
  EXPECT_FALSE(pages.due(1099, false, kKeepNs));
  EXPECT_TRUE(pages.due(1100, false, kKeepNs));
  EXPECT_TRUE(pages.due(1101, false, kKeepNs));
  EXPECT_EQ(pages.deadline_ns(), 1100u);
  pages.dropped();
  EXPECT_EQ(pages.deadline_ns(), 0u);
  EXPECT_FALSE(pages.due(9999, false, kKeepNs));
}

TEST(IdlePages, WhatIsTouchedWhileOthersAreDroppedWaitsForItsTime) {
  IdlePages pages;
  pages.touch();
  EXPECT_FALSE(pages.due(1000, false, kKeepNs));
  EXPECT_TRUE(pages.due(1100, false, kKeepNs));
  pages.touch();  // by what begins and ends within a turn
  EXPECT_FALSE(pages.due(1101, false, kKeepNs));
  EXPECT_TRUE(pages.due(1201, false, kKeepNs));
}

TEST(IdlePages, WorkPutsTheTimeOff) {
  IdlePages pages;
  pages.touch();
  EXPECT_FALSE(pages.due(1000, false, kKeepNs));
  EXPECT_FALSE(pages.due(1050, true, kKeepNs));
  EXPECT_EQ(pages.deadline_ns(), 0u);
  EXPECT_FALSE(pages.due(1120, false, kKeepNs));
  EXPECT_TRUE(pages.due(1220, false, kKeepNs));
  EXPECT_FALSE(pages.due(1221, true, kKeepNs)) << "before all of them were dropped";
  EXPECT_FALSE(pages.due(1222, false, kKeepNs));
}

}  // namespace
}  // namespace tern::daemon
