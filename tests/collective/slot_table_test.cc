#include "collective/slot_table.h"

#include <gtest/gtest.h>

#include <set>

namespace tern::collective {
namespace {

TEST(SlotTable, ASlotThatIsTakenAgainIsAsNew) {
  SlotTable<int> table;
  const std::uint32_t slot = table.take();
  table[slot] = 7;
  EXPECT_TRUE(table.in_use(slot));
  table.give(slot);
  EXPECT_FALSE(table.in_use(slot));
  EXPECT_FALSE(table.in_use(1'000'000));
  EXPECT_EQ(table.take(), slot);
  EXPECT_EQ(table[slot], 0);
}

TEST(SlotTable, GrowsToWhatIsInUseAtOnceAndNoFurther) {
  SlotTable<int> table;
  std::set<std::uint32_t> taken;
  for (int i = 0; i < 100; ++i) taken.insert(table.take());
  EXPECT_EQ(taken.size(), 100u);
  EXPECT_EQ(table.used(), 100u);
  const std::uint32_t size = table.size();
  for (int i = 0; i < 1000; ++i) {
    table.give(*taken.begin());
    taken.erase(taken.begin());
    taken.insert(table.take());
  }
  EXPECT_EQ(table.size(), size);
  EXPECT_EQ(table.used(), 100u);
}

}  // namespace
}  // namespace tern::collective
