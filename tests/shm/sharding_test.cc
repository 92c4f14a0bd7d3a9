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
    const Sharding sharding = make_sharding({.tensor = random() % 2 == 0 ? 0 : random(),
                                             .sequence = random() % 100,
                                             .count = 1 + random() % 5000,
                                             .dtype = DType::f32,
                                             .chunk_bytes = 256,
                                             .nodes = nodes,
                                             .lanes = lanes,
                                             .one_lane = random() % 4 == 0});
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
    const Sharding sharding = make_sharding(
        {.sequence = sequence, .dtype = DType::u8, .chunk_bytes = 4096, .nodes = 3, .lanes = 4});
    int used = 0;
    for (std::uint32_t lane = 0; lane < 4; ++lane) used += sharding.uses_lane(lane) ? 1 : 0;
    EXPECT_EQ(used, 1);
    EXPECT_TRUE(sharding.uses_lane(static_cast<std::uint32_t>(sequence % 4)));
  }
}

// Client and all nodes must find the same lane: these numbers never change.
TEST(LaneOfTag, IsTheSameEverywhere) {
  EXPECT_EQ(lane_of_tag(0, 0, 4), 0u);
  EXPECT_EQ(lane_of_tag(1, 0, 4), 3u);
  EXPECT_EQ(lane_of_tag(1, 7, 4), 2u);
  EXPECT_EQ(lane_of_tag(3, 7, 16), 7u);
  EXPECT_EQ(lane_of_tag(1023, 0xffffffff, 3), 0u);
}

TEST(LaneOfTag, TagsAndDestinationsUseAllLanes) {
  std::set<std::uint32_t> of_tags, of_ranks;
  for (std::uint32_t i = 0; i < 64; ++i) {
    of_tags.insert(lane_of_tag(1, i, 4));
    of_ranks.insert(lane_of_tag(i, 0, 4));
    EXPECT_EQ(lane_of_tag(i, i, 1), 0u);
  }
  EXPECT_EQ(of_tags.size(), 4u);
  EXPECT_EQ(of_ranks.size(), 4u);
}

}  // namespace
}  // namespace tern::shm
