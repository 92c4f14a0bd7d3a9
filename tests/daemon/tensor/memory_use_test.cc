#include "daemon/tensor/memory_use.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace memory_use_test {

constexpr MemoryUse::User kFirst{.kind = 1};
constexpr MemoryUse::User kSums{.kind = 6, .one_leg = true, .counts_crc = 77};

TEST(MemoryUse, IsOfTheFirstThatTakesIt) {
  MemoryUse use;
  EXPECT_TRUE(use.admits(kFirst));
  EXPECT_TRUE(use.admits(kSums));
  EXPECT_FALSE(use.has_one_leg());
  EXPECT_TRUE(use.take(kSums));
  EXPECT_TRUE(use.take(kSums));
  EXPECT_FALSE(use.take(kFirst));
  EXPECT_FALSE(use.admits(kFirst));
  EXPECT_TRUE(use.admits(kSums));
  EXPECT_TRUE(use.has_one_leg());
}

TEST(MemoryUse, OtherCountsAreAnotherUser) {
  MemoryUse use;
  ASSERT_TRUE(use.take(kSums));
  MemoryUse::User other = kSums;
  other.counts_crc = 78;
  EXPECT_FALSE(use.admits(other));
}

TEST(MemoryUse, RemembersTheFirstRootAndComparesNone) {
  MemoryUse use;
  EXPECT_EQ(use.root(), MemoryUse::kNoRoot);
  MemoryUse::User reduces{.kind = 5, .one_leg = true, .root = 4095};
  EXPECT_TRUE(use.take(reduces));
  EXPECT_EQ(use.root(), 4095u);
  EXPECT_EQ(use.kind(), 5);
  EXPECT_EQ(use.counts_crc(), 0u);
  reduces.root = 0;
  EXPECT_TRUE(use.admits(reduces));
  EXPECT_TRUE(use.take(reduces));
  EXPECT_EQ(use.root(), 4095u);
  EXPECT_FALSE(use.admits(kSums));
  MemoryUse without;
  EXPECT_TRUE(without.take(kSums));
  EXPECT_EQ(without.root(), MemoryUse::kNoRoot);
}

TEST(MemoryUse, GoesWithTheStateThatIsKept) {
  MemoryUse kept, next;
  ASSERT_TRUE(kept.take(kSums));
  next.adopt(kept);
  EXPECT_FALSE(next.take(kFirst));
}

}  // namespace memory_use_test
}  // namespace tern::daemon
