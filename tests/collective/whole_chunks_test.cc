#include "collective/whole_chunks.h"

#include <gtest/gtest.h>

#include <vector>

#include "plan/plan.h"

namespace tern::collective {
namespace whole_chunks_test {

using plan::Ownership;

struct Case {
  std::uint32_t nodes, lanes;
  std::uint64_t chunks, spread;
  bool one_lane;
};

constexpr std::uint64_t kChunkElements = 16;

shm::Sharding sharding_of(const Case& c) {
  return shm::make_sharding({.tensor = c.spread,
                             .sequence = c.spread,
                             .count = c.chunks * kChunkElements,
                             .dtype = DType::f32,
                             .chunk_bytes = kChunkElements * sizeof(float),
                             .nodes = c.nodes,
                             .lanes = c.lanes,
                             .one_lane = c.one_lane});
}

// Every chunk is owned once, on one lane, by whom the sharding says; index() is the inverse of
// chunk().
void expect_partition(const Case& c, Ownership ownership, std::uint32_t root) {
  const shm::Sharding sharding = sharding_of(c);
  ASSERT_EQ(sharding.chunk_count, c.chunks);
  std::vector<int> owned(c.chunks, 0);
  for (std::uint32_t lane = 0; lane < c.lanes; ++lane) {
    const WholeChunks map(sharding, lane, ownership == Ownership::striped ? kNoSlot : root);
    std::uint64_t on_lane = 0;
    for (std::uint32_t node = 0; node < c.nodes; ++node) {
      std::uint32_t before = 0;
      for (std::uint32_t i = 0; i < map.owned(node); ++i, ++on_lane) {
        const std::uint32_t chunk = map.chunk(node, i);
        ASSERT_LT(chunk, c.chunks);
        ++owned[chunk];
        ASSERT_EQ(sharding.lane(chunk), lane);
        ASSERT_EQ(map.index(node, chunk), i);
        ASSERT_TRUE(i == 0 || chunk > before) << "chunks are worked on in rising order";
        before = chunk;
        if (ownership == Ownership::striped) {
          ASSERT_EQ(sharding.owner(chunk), node);
        } else {
          ASSERT_EQ(node, root);
        }
        for (std::uint32_t other = 0; other < c.nodes; ++other) {
          if (other == node) continue;
          ASSERT_EQ(map.index(other, chunk), kNoSlot);
        }
      }
    }
    if (c.chunks > 0) {
      ASSERT_EQ(sharding.uses_lane(lane), on_lane > 0);
    }
    ASSERT_EQ(map.index(0, static_cast<std::uint32_t>(c.chunks)), kNoSlot);
    ASSERT_EQ(map.index(0, 0xffffffff), kNoSlot);
  }
  for (const int count : owned) ASSERT_EQ(count, 1);
}

class Shape : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Nodes, Shape, testing::Range(1u, 17u));

TEST_P(Shape, EveryChunkIsOwnedOnceOnOneLane) {
  for (std::uint32_t lanes = 1; lanes <= 3; ++lanes) {
    for (std::uint64_t chunks = 0; chunks <= 200; ++chunks) {
      for (const bool one_lane : {false, true}) {
        // The largest spread there is, and one that changes with the rest.
        for (const std::uint64_t spread : {std::uint64_t{0x7fffffff}, chunks * 7 + lanes}) {
          const Case c{GetParam(), lanes, chunks, spread, one_lane};
          SCOPED_TRACE(testing::Message() << "lanes " << lanes << " chunks " << chunks << " spread "
                                          << spread << " one_lane " << one_lane);
          expect_partition(c, Ownership::striped, 0);
          expect_partition(c, Ownership::root_node, static_cast<std::uint32_t>(chunks) % c.nodes);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Shape, ABarrierUsesExactlyOneLane) {
  for (std::uint32_t lanes = 1; lanes <= 3; ++lanes) {
    for (std::uint64_t spread = 0; spread < 10; ++spread) {
      const shm::Sharding sharding = sharding_of({GetParam(), lanes, 0, spread, false});
      int used = 0;
      for (std::uint32_t lane = 0; lane < lanes; ++lane) used += sharding.uses_lane(lane) ? 1 : 0;
      EXPECT_EQ(used, 1);
    }
  }
}

TEST(WholeChunks, OwnersDoNotDependOnTheLaneCount) {
  for (std::uint64_t chunk = 0; chunk < 100; ++chunk) {
    const auto one = sharding_of({5, 1, 100, 3, false});
    const auto three = sharding_of({5, 3, 100, 3, false});
    EXPECT_EQ(one.owner(chunk), three.owner(chunk));
  }
}

TEST(WholeChunks, OwnersOfDifferentTensorsStartAtDifferentNodes) {
  EXPECT_NE(sharding_of({4, 1, 1, 1, false}).owner(0), sharding_of({4, 1, 1, 2, false}).owner(0));
}

}  // namespace whole_chunks_test
}  // namespace tern::collective
