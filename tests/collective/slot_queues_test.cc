#include "collective/slot_queues.h"

#include <gtest/gtest.h>

#include <vector>

namespace tern::collective {
namespace {

std::vector<std::uint32_t> all_of(const SlotQueues& queues, std::uint32_t queue) {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t slot = queues.first(queue); slot != kNoSlot; slot = queues.after(slot)) {
    slots.push_back(slot);
  }
  return slots;
}

TEST(SlotQueues, KeepTheOrderAndLoseAnyPlace) {
  SlotQueues queues(2);
  queues.grow(6);
  for (const std::uint32_t slot : {4u, 1u, 5u, 0u}) queues.add(0, slot);
  queues.add(1, 3);
  EXPECT_EQ(all_of(queues, 0), (std::vector<std::uint32_t>{4u, 1u, 5u, 0u}));
  queues.remove(1);
  queues.remove(4);
  queues.remove(0);
  EXPECT_EQ(all_of(queues, 0), (std::vector<std::uint32_t>{5}));
  EXPECT_EQ(all_of(queues, 1), (std::vector<std::uint32_t>{3}));
  queues.remove(1);  // it is in none
  EXPECT_FALSE(queues.has(1));
  EXPECT_TRUE(queues.has(5));
}

TEST(SlotQueues, ASlotMovesToTheEndOfAnyQueue) {
  SlotQueues queues(2);
  queues.grow(3);
  for (const std::uint32_t slot : {0u, 1u, 2u}) queues.add(0, slot);
  queues.move_to(0, 0);
  EXPECT_EQ(all_of(queues, 0), (std::vector<std::uint32_t>{1, 2, 0}));
  queues.move_to(1, 2);
  EXPECT_EQ(all_of(queues, 0), (std::vector<std::uint32_t>{1, 0}));
  EXPECT_EQ(all_of(queues, 1), (std::vector<std::uint32_t>{2}));
}

TEST(SlotQueues, GrowWithTheTable) {
  SlotQueues queues(1);
  queues.grow(1);
  queues.add(0, 0);
  queues.grow(100);
  queues.add(0, 99);
  EXPECT_EQ(all_of(queues, 0), (std::vector<std::uint32_t>{0, 99}));
}

}  // namespace
}  // namespace tern::collective
