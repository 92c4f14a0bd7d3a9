#include "shm/sharding.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tern::shm {
namespace {

TEST(Sharding, UsesLaneAgreesWithTheLanesOfTheChunks) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const auto nodes = static_cast<std::uint32_t>(1 + random() % 9);
    const auto lanes = static_cast<std::uint32_t>(1 + random() % 16);
    const Sharding sharding =
        make_sharding(random() % 2 == 0 ? 0 : random(), random() % 100, 1 + random() % 5000,
                      DType::f32, 256, nodes, lanes, random() % 4 == 0);
    std::set<std::uint32_t> used;
    std::uint64_t elements = 0;
    for (std::uint64_t c = 0; c < sharding.chunk_count; ++c) {
      ASSERT_LT(sharding.owner(c), nodes);
      used.insert(sharding.lane(c));
      elements += sharding.chunk_size(c);
    }
    ASSERT_EQ(elements, sharding.count);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      ASSERT_EQ(sharding.uses_lane(lane), used.contains(lane)) << lane;
    }
  }
}

TEST(Sharding, AnOpWithoutElementsHasOneLane) {
  for (std::uint64_t sequence = 0; sequence < 10; ++sequence) {
    const Sharding sharding = make_sharding(0, sequence, 0, DType::u8, 4096, 3, 4, false);
    int used = 0;
    for (std::uint32_t lane = 0; lane < 4; ++lane) used += sharding.uses_lane(lane) ? 1 : 0;
    EXPECT_EQ(used, 1);
    EXPECT_TRUE(sharding.uses_lane(static_cast<std::uint32_t>(sequence % 4)));
  }
}

}  // namespace
}  // namespace tern::shm
