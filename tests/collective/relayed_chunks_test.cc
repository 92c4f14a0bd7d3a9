#include "collective/relayed_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tern::collective {
namespace relayed_chunks_test {

struct Case {
  std::uint32_t nodes, lanes, root;
  std::uint64_t chunks, spread;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (std::uint32_t nodes = 3; nodes <= 8; ++nodes) {
    for (std::uint32_t lanes = 1; lanes <= 4; ++lanes) {
      for (const std::uint64_t chunks : {1u, 2u, 7u, 8u, 64u, 173u}) {
        for (const std::uint64_t spread : {0u, 3u, 1001u}) {
          all.push_back({nodes, lanes, (nodes + lanes) % nodes, chunks, spread});
        }
      }
    }
  }
  return all;
}

GroupShape group_of(const Case& one, std::uint32_t lane) {
  GroupShape group;
  group.lane = lane;
  group.lanes = one.lanes;
  for (std::uint32_t node = 0; node < one.nodes; ++node) group.ranks.push_back({node});
  return group;
}

RelayedChunks chunks_of(const Case& one, const GroupShape& group, bool root_sends = false) {
  constexpr std::uint64_t kElements = 16;
  const shm::Sharding sharding = shm::make_sharding({.tensor = one.spread,
                                                     .count = one.chunks * kElements - 1,
                                                     .dtype = DType::f32,
                                                     .chunk_bytes = kElements * sizeof(float),
                                                     .nodes = one.nodes,
                                                     .lanes = one.lanes});
  return {sharding, group, one.root, root_sends};
}

// For every case and lane.
template <typename Check>
void for_each(Check check) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(testing::Message() << one.nodes << " nodes, " << one.lanes << " lanes, "
                                    << one.chunks << " chunks, spread " << one.spread);
    for (std::uint32_t lane = 0; lane < one.lanes; ++lane) check(one, group_of(one, lane));
  }
}

TEST(RelayedChunks, HaveOneOwnerEachThatIsNotTheRoot) {
  for (const Case& one : cases()) {
    std::vector<std::uint32_t> owner(one.chunks, kNoSlot);
    for (std::uint32_t lane = 0; lane < one.lanes; ++lane) {
      const GroupShape group = group_of(one, lane);
      const RelayedChunks chunks = chunks_of(one, group);
      EXPECT_EQ(chunks.owned(one.root), 0u);
      for (std::uint32_t node = 0; node < one.nodes; ++node) {
        for (std::uint32_t i = 0; i < chunks.owned(node); ++i) {
          const std::uint32_t number = chunks.chunk(node, i);
          ASSERT_LT(number, one.chunks);
          EXPECT_EQ(owner[number], kNoSlot) << "twice";
          owner[number] = node;
          EXPECT_EQ(chunks.owner(number), node);
          EXPECT_EQ(chunks.index(node, number), i);
        }
      }
    }
    EXPECT_EQ(std::count(owner.begin(), owner.end(), kNoSlot), 0);
  }
}

// The order of additions depends on the owner.
TEST(RelayedChunks, HaveTheSameOwnersHoweverManyLanesThereAre) {
  for (Case one : cases()) {
    const GroupShape group = group_of(one, 0);
    const RelayedChunks here = chunks_of(one, group);
    one.lanes = 1;
    const RelayedChunks there = chunks_of(one, group);
    for (std::uint32_t number = 0; number < one.chunks; ++number) {
      EXPECT_EQ(here.owner(number), there.owner(number));
    }
  }
}

TEST(RelayedChunks, AreSpreadEvenly) {
  const Case one{7, 1, 2, std::uint64_t{7} * 6 * 5, 11};
  const GroupShape group = group_of(one, 0);
  const RelayedChunks chunks = chunks_of(one, group);
  for (std::uint32_t node = 0; node < one.nodes; ++node) {
    EXPECT_EQ(chunks.owned(node), node == one.root ? 0u : 35u);
  }
}

TEST(RelayedChunks, NobodyHasAChunkOfAnother) {
  for_each([](const Case& one, const GroupShape& group) {
    const RelayedChunks chunks = chunks_of(one, group);
    for (std::uint32_t number = 0; number < one.chunks; ++number) {
      for (std::uint32_t node = 0; node < one.nodes; ++node) {
        if (node == chunks.owner(number)) continue;
        EXPECT_EQ(chunks.index(node, number), kNoSlot) << "chunk " << number << ", node " << node;
      }
    }
    EXPECT_EQ(chunks.index(0, static_cast<std::uint32_t>(one.chunks)), kNoSlot);
  });
}

TEST(RelayedChunks, OfARootThatSendsAreAllWithIt) {
  for_each([](const Case& one, const GroupShape& group) {
    const RelayedChunks chunks = chunks_of(one, group, true);
    std::uint32_t others = 0;
    for (std::uint32_t node = 0; node < one.nodes; ++node) {
      if (node != one.root) others += chunks.owned(node);
    }
    EXPECT_EQ(chunks.owned(one.root), others);
    for (std::uint32_t i = 0; i < others; ++i) {
      EXPECT_EQ(chunks.index(one.root, chunks.chunk(one.root, i)), i);
    }
  });
}

}  // namespace relayed_chunks_test
}  // namespace tern::collective
