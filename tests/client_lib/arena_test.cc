#include "client_lib/arena.h"

#include <gtest/gtest.h>

#include <random>

namespace tern::client_lib {
namespace {

constexpr std::uint64_t kPiece = Arena::kAlignment;  // the smallest

TEST(Arena, GivesAlignedPiecesUntilFull) {
  Arena arena(4 * kPiece);
  EXPECT_EQ(arena.allocate(1), 0u);
  EXPECT_EQ(arena.allocate(65), 64u);
  EXPECT_EQ(arena.allocate(64), 192u);
  EXPECT_FALSE(arena.allocate(1));
  EXPECT_EQ(arena.used_bytes(), 256u);
}

TEST(Arena, JoinsFreedNeighboursOnBothSides) {
  Arena arena(3 * kPiece);
  const std::uint64_t a = *arena.allocate(64);
  const std::uint64_t b = *arena.allocate(64);
  const std::uint64_t c = *arena.allocate(64);
  EXPECT_TRUE(arena.free(a));
  EXPECT_TRUE(arena.free(c));
  EXPECT_FALSE(arena.allocate(128));
  EXPECT_TRUE(arena.free(b));
  EXPECT_EQ(arena.allocate(192), 0u);
}

TEST(Arena, TakesTheSmallestHoleThatFits) {
  Arena arena(64 * kPiece);
  const std::uint64_t large = *arena.allocate(8 * kPiece);
  (void)arena.allocate(64);
  const std::uint64_t small = *arena.allocate(2 * kPiece);
  (void)arena.allocate(64);
  arena.free(large);
  arena.free(small);
  EXPECT_EQ(arena.allocate(2 * kPiece), small);
}

TEST(Arena, RefusesToFreeWhatIsNotAllocated) {
  Arena arena(256);
  const std::uint64_t a = *arena.allocate(128);
  EXPECT_FALSE(arena.free(64));
  EXPECT_TRUE(arena.free(a));
  EXPECT_FALSE(arena.free(a));
}

TEST(Arena, RefusesSizesThatCannotFit) {
  Arena arena(256);
  EXPECT_FALSE(arena.allocate(257));
  EXPECT_FALSE(arena.allocate(~std::uint64_t{0}));
}

TEST(Arena, RandomUseNeverOverlapsAndEndsWhole) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  constexpr std::uint64_t kBytes = 1 << 16;
  Arena arena(kBytes);
  std::map<std::uint64_t, std::uint64_t> live;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0) {
      const std::uint64_t bytes = 1 + random() % 3000;
      const auto offset = arena.allocate(bytes);
      if (!offset) continue;
      ASSERT_EQ(*offset % Arena::kAlignment, 0u);
      ASSERT_LE(*offset + bytes, kBytes);
      const auto after = live.lower_bound(*offset);
      if (after != live.end()) {
        ASSERT_LE(*offset + bytes, after->first);
      }
      if (after != live.begin()) {
        const auto before = std::prev(after);
        ASSERT_LE(before->first + before->second, *offset);
      }
      live.emplace(*offset, bytes);
    } else if (!live.empty()) {
      const auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      ASSERT_TRUE(arena.free(victim->first));
      live.erase(victim);
    }
  }
  for (const auto& [offset, bytes] : live) ASSERT_TRUE(arena.free(offset));
  EXPECT_EQ(arena.used_bytes(), 0u);
  EXPECT_EQ(arena.allocate(kBytes), 0u);
}

}  // namespace
}  // namespace tern::client_lib
