#include "daemon/lane/slab_pool.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

constexpr std::uint32_t kSlabs = 3;

class SlabPoolTest : public testing::Test {
 protected:
  Mapping memory = *Mapping::make(SlabPool::bytes_for(kSlabs, 64));
  SlabPool pool{memory, kSlabs, 64};
};

TEST_F(SlabPoolTest, GivesOutEachSlabOnceAndTheOneGivenBackLastFirst) {
  const std::uint32_t first = pool.take();
  const std::uint32_t second = pool.take();
  const std::uint32_t third = pool.take();
  EXPECT_NE(first, second);
  EXPECT_NE(second, third);
  EXPECT_NE(first, third);
  EXPECT_EQ(pool.take(), SlabPool::kNone);
  pool.give(third);
  pool.give(first);
  EXPECT_EQ(pool.take(), first);
  EXPECT_EQ(pool.take(), third);
}

TEST_F(SlabPoolTest, WhatIsPromisedNobodyElseTakes) {
  pool.promise();
  pool.promise();
  EXPECT_EQ(pool.free_count(), 1u);
  const std::uint32_t taken = pool.take();
  EXPECT_NE(taken, SlabPool::kNone);
  EXPECT_EQ(pool.take(), SlabPool::kNone);
  const std::uint32_t promised = pool.take_promised();
  EXPECT_NE(promised, SlabPool::kNone);
  EXPECT_NE(promised, taken);
  EXPECT_EQ(pool.free_count(), 0u);
}

TEST_F(SlabPoolTest, APromiseThatIsWithdrawnIsFreeAgain) {
  for (std::uint32_t i = 0; i < kSlabs; ++i) pool.promise();
  EXPECT_EQ(pool.take(), SlabPool::kNone);
  pool.withdraw_promise();
  EXPECT_EQ(pool.free_count(), 1u);
  EXPECT_NE(pool.take(), SlabPool::kNone);
}

TEST_F(SlabPoolTest, APromiseIsKeptWithTheSlabGivenBackLast) {
  const std::uint32_t taken = pool.take();
  pool.promise();
  pool.give(taken);
  EXPECT_EQ(pool.take_promised(), taken);
}

TEST(SlabPool, PoolsOfOneMappingShareNoPage) {
  Mapping memory = *Mapping::make(2 * SlabPool::bytes_for(kSlabs, 100));
  SlabPool first(memory, kSlabs, 100), second(memory, kSlabs, 100);
  second.slab(0)[0] = std::byte{1};
  first.slab(0)[0] = std::byte{2};
  first.drop_pages();
  EXPECT_EQ(first.slab(0)[0], std::byte{0});
  EXPECT_EQ(second.slab(0)[0], std::byte{1});
}

}  // namespace
}  // namespace tern::daemon
