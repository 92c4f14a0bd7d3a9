#include "daemon/lane/slab_pool.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

constexpr std::uint32_t kSlabs = 3;

TEST(SlabPool, GivesOutEachSlabOnceAndTheOneGivenBackLastFirst) {
  SlabPool pool(kSlabs, 64);
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

TEST(SlabPool, WhatIsPromisedNobodyElseTakes) {
  SlabPool pool(kSlabs, 64);
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

TEST(SlabPool, APromiseThatIsWithdrawnIsFreeAgain) {
  SlabPool pool(kSlabs, 64);
  for (std::uint32_t i = 0; i < kSlabs; ++i) pool.promise();
  EXPECT_EQ(pool.take(), SlabPool::kNone);
  pool.withdraw_promise();
  EXPECT_EQ(pool.free_count(), 1u);
  EXPECT_NE(pool.take(), SlabPool::kNone);
}

TEST(SlabPool, APromiseIsKeptWithTheSlabGivenBackLast) {
  SlabPool pool(kSlabs, 64);
  const std::uint32_t taken = pool.take();
  pool.promise();
  pool.give(taken);
  EXPECT_EQ(pool.take_promised(), taken);
}

}  // namespace
}  // namespace tern::daemon
