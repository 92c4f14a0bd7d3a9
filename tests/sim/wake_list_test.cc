#include "wake_list.h"

#include <gtest/gtest.h>

namespace tern::sim {
namespace {

TEST(WakeList, TakesWhoseTimeHasComeOnce) {
  WakeList list;
  WakeList::Part part;
  EXPECT_FALSE(list.take(100, part));
  list.wake_at(20, {3, 1});
  list.wake_at(10, {2, 0});
  EXPECT_EQ(list.next_ns(), 10u);
  EXPECT_FALSE(list.take(9, part));
  ASSERT_TRUE(list.take(30, part));
  EXPECT_EQ(part.daemon, 2u);
  ASSERT_TRUE(list.take(30, part));
  EXPECT_EQ(part.daemon, 3u);
  EXPECT_EQ(part.number, 1u);
  EXPECT_FALSE(list.take(30, part));
}

TEST(WakeList, TheEarlierOfTwoTimesCounts) {
  WakeList list;
  WakeList::Part part;
  list.wake_at(50, {0, 0});
  list.wake_at(10, {0, 0});
  list.wake_at(40, {0, 0});
  EXPECT_TRUE(list.take(10, part));
  EXPECT_FALSE(list.take(100, part));
  list.wake_at(50, {0, 0});
  EXPECT_FALSE(list.take(49, part));
  EXPECT_TRUE(list.take(50, part));
}

}  // namespace
}  // namespace tern::sim
