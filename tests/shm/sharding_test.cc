#include "shm/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

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

Sharding random_sharding(std::mt19937_64& random, CutVersion version, std::uint64_t count) {
  return make_sharding({.tensor = random(),
                        .count = count,
                        .dtype = DType::f32,
                        .chunk_bytes = std::uint64_t{1} << (14 + random() % 7),
                        .version = version,
                        .nodes = static_cast<std::uint32_t>(1 + random() % 64),
                        .lanes = static_cast<std::uint32_t>(1 + random() % 16),
                        .one_lane = random() % 8 == 0});
}

TEST(EvenCut, MovesBordersAndNoChunkToAnotherLane) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed), again(seed);
    const std::uint64_t count = random() % (std::uint64_t{1} << (1 + random() % 41));
    again.discard(2);
    const Sharding full = random_sharding(random, CutVersion::full, count);
    const Sharding even = random_sharding(again, CutVersion::even, count);
    ASSERT_EQ(even.rounds(), full.rounds()) << seed;
    ASSERT_EQ(even.lanes_used(), full.lanes_used()) << seed;
    ASSERT_LE(even.chunk_elements, full.chunk_elements) << seed;
    ASSERT_EQ(even.chunk_elements % kChunkUnit, 0u) << seed;
    if (count == 0) continue;
    ASSERT_LE(even.chunk_elements, count / (even.rounds() * even.columns) + kChunkUnit) << seed;
    std::mt19937_64 once_more(seed);
    once_more.discard(2);
    const Sharding fine = random_sharding(once_more, CutVersion::fine, count);
    ASSERT_EQ(fine.rounds(), full.rounds()) << seed;
    ASSERT_EQ(fine.lanes_used(), full.lanes_used()) << seed;
    ASSERT_EQ(fine.chunk_elements % kSmallUnit, 0u) << seed;
    if (full.rounds() > 1) {
      ASSERT_EQ(fine.chunk_elements, even.chunk_elements) << seed;
    }
    ASSERT_LE(fine.chunk_elements, even.chunk_elements) << seed;
    if (fine.chunk_elements >= kChunkUnit) {
      ASSERT_EQ(fine.chunk_elements, even.chunk_elements) << seed;
    }
    const std::uint64_t last = even.chunk_count - 1;
    ASSERT_LT(even.chunk_begin(last), count) << seed;
    ASSERT_EQ(even.chunk_begin(last) + even.chunk_size(last), count) << seed;
  }
}

// Codec state, scales and logs of choices belong to chunks: these numbers never change.
TEST(EvenCut, HasTheseBorders) {
  struct Case {
    std::uint64_t count, most, columns, full, even, fine;
  };
  for (const Case& c :
       {Case{0, 65'536, 4, 65'536, 65'536, 65'536},
        {1, 65'536, 4, 65'536, 4'096, 256},
        {4'097, 65'536, 1, 65'536, 8'192, 8'192},
        {7'000, 65'536, 3, 65'536, 4'096, 2'560},
        {16'384, 65'536, 8, 65'536, 4'096, 2'048},
        {16'384, 65'536, 16, 65'536, 4'096, 1'024},
        {32'761, 65'536, 8, 65'536, 4'096, 4'096},
        {100'000, 65'536, 2, 65'536, 53'248, 53'248},
        {131'072, 65'536, 2, 65'536, 65'536, 65'536},
        {131'073, 65'536, 2, 65'536, 36'864, 36'864},
        {1'048'576, 65'536, 10, 65'536, 53'248, 53'248},  // 2 of each owner
        {1'048'576, 65'536, 3, 65'536, 61'440, 61'440},
        {30'000, 4'096, 3, 4'096, 4'096, 4'096},
        {30'000, 1'024, 3, 1'024, 1'024, 1'024},
        {30'000, 100, 3, 100, 100, 100},
        {std::uint64_t{1} << 40, 65'536, 64, 65'536, 65'536, 65'536},
        {(std::uint64_t{1} << 32) + 1, 1'048'576, 7, 1'048'576, 1'048'576, 1'048'576},
        {5'000'000'000, 1'048'576, 3, 1'048'576, 1'048'576, 1'048'576},
        {40'000'000, 1'048'576, 3, 1'048'576, 1'028'096, 1'028'096}}) {
    EXPECT_EQ(elements_of_chunk(CutVersion::full, c.count, c.most, c.columns), c.full) << c.count;
    EXPECT_EQ(elements_of_chunk(CutVersion::even, c.count, c.most, c.columns), c.even) << c.count;
    EXPECT_EQ(elements_of_chunk(CutVersion::fine, c.count, c.most, c.columns), c.fine) << c.count;
  }
}

// 4 MiB of f32 among ten: in full chunks some own two and some one.
TEST(EvenCut, OwnersHaveAsMuchAsEachOther) {
  for (const std::uint32_t nodes : {3u, 10u, 48u}) {
    const Sharding sharding = make_sharding({.tensor = 1,
                                             .count = 1 << 20,
                                             .dtype = DType::f32,
                                             .chunk_bytes = 256 << 10,
                                             .version = CutVersion::even,
                                             .nodes = nodes});
    std::vector<std::uint64_t> owned(nodes, 0);
    for (std::uint64_t c = 0; c < sharding.chunk_count; ++c) {
      owned[sharding.owner(c)] += sharding.chunk_size(c);
    }
    const auto [least, most] = std::minmax_element(owned.begin(), owned.end());
    EXPECT_LE(*most - *least, sharding.rounds() * kChunkUnit * nodes);
    EXPECT_LE(*most, (std::uint64_t{1} << 20) / nodes + sharding.rounds() * kChunkUnit);
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
