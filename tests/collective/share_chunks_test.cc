#include "collective/share_chunks.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "collective/share_tables.h"

namespace tern::collective {
namespace share_chunks_test {

constexpr std::uint64_t kElements = 16;  // of a chunk

struct Case {
  std::vector<std::vector<std::uint32_t>> ranks;
  std::vector<std::uint64_t> counts;
  bool equal = false;  // the counts are, and nobody gives them
  std::uint32_t lanes = 1;
  std::uint64_t spread = 0;
  bool one_lane = false;
  std::uint32_t root_node = kNoSlot;
  shm::CutVersion version = shm::CutVersion::full;
  std::uint64_t elements = kElements;  // of a chunk, at most
};

std::uint64_t sum(const std::vector<std::uint64_t>& counts) {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : counts) sum += count;
  return sum;
}

// Every element of every share lies in one chunk, which one node owns on one lane.
void expect_partition(const Case& c) {
  const auto ranks = static_cast<std::uint32_t>(c.counts.size());
  ShareTables tables(ranks);
  const std::uint64_t* const begins = c.equal ? nullptr : tables.take(c.counts);
  const shm::Sharding sharding =
      shm::make_sharding({.tensor = c.spread,
                          .sequence = c.spread,
                          .count = sum(c.counts),
                          .dtype = DType::f32,
                          .chunk_bytes = c.elements * sizeof(float),
                          .version = c.version,
                          .nodes = static_cast<std::uint32_t>(c.ranks.size()),
                          .lanes = c.lanes,
                          .one_lane = c.one_lane,
                          .shares = ranks,
                          .largest_share = *std::max_element(c.counts.begin(), c.counts.end())});
  std::vector<int> covered(sum(c.counts), 0);
  for (std::uint32_t lane = 0; lane < c.lanes; ++lane) {
    GroupShape group;
    group.lane = lane;
    group.ranks = c.ranks;
    const ShareChunks chunks(sharding, group, c.root_node, begins);
    std::uint32_t in_shares = 0, owned = 0;
    for (std::uint32_t node = 0; node < c.ranks.size(); ++node) {
      in_shares += chunks.in_shares_of(node);
      owned += chunks.owned(node);
      for (std::uint32_t i = 0; i < chunks.owned(node); ++i) {
        const std::uint32_t number = chunks.chunk(node, i);
        ASSERT_EQ(chunks.index(node, number), i);
        ASSERT_EQ(sharding.lane(number), lane);
        ASSERT_TRUE(sharding.uses_lane(lane));
        const std::uint32_t sharer = chunks.sharer(number);
        const bool of_node = std::count(c.ranks[node].begin(), c.ranks[node].end(), sharer) != 0;
        ASSERT_TRUE(c.root_node == kNoSlot ? of_node : node == c.root_node);
        ASSERT_GT(chunks.size(number), 0u);
        ASSERT_LE(chunks.size(number), c.elements);
        for (std::uint64_t e = 0; e < chunks.size(number); ++e) ++covered[chunks.begin(number) + e];
        for (std::uint32_t other = 0; other < c.ranks.size(); ++other) {
          if (other != node) {
            ASSERT_EQ(chunks.index(other, number), kNoSlot);
          }
        }
      }
    }
    ASSERT_EQ(in_shares, owned);
    // Numbers that a peer may send, of chunks that there are not.
    for (std::uint32_t number = 0; number < sharding.chunk_count + 9; ++number) {
      const std::uint32_t index = chunks.index(0, number);
      if (index != kNoSlot) {
        ASSERT_EQ(chunks.chunk(0, index), number);
      }
    }
    ASSERT_EQ(chunks.index(0, 0xffffffff), kNoSlot);
  }
  for (const int times : covered) ASSERT_EQ(times, 1);
}

// Counts are multiples of `unit`, less a few.
Case draw(std::mt19937_64& random, std::uint64_t unit) {
  const auto some = [&] {
    const std::uint64_t count = random() % 200 * unit;
    return count - std::min<std::uint64_t>(count, unit == 1 ? 0 : random() % 3);
  };
  Case c;
  const auto nodes = static_cast<std::uint32_t>(random() % 5 + 1);
  const auto ranks = nodes + static_cast<std::uint32_t>(random() % 6);
  c.ranks.resize(nodes);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    c.ranks[rank < nodes ? rank : random() % nodes].push_back(rank);
    c.counts.push_back(random() % 4 == 0 ? 0 : some());
  }
  c.equal = random() % 3 == 0;
  if (c.equal) c.counts.assign(ranks, some());
  c.lanes = static_cast<std::uint32_t>(random() % 3 + 1);
  c.spread = random() % 50;
  c.one_lane = random() % 4 == 0;
  if (random() % 3 == 0) c.root_node = static_cast<std::uint32_t>(random() % nodes);
  return c;
}

TEST(ShareChunks, CoverEveryShareOnce) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    expect_partition(draw(random, 1));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ShareChunks, CoverEveryShareOnceInChunksOfOneSize) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 100; ++round) {
    Case c = draw(random, 1000);
    c.version = shm::CutVersion::even;
    c.elements = 4 * shm::kChunkUnit;
    SCOPED_TRACE(testing::Message() << "round " << round);
    expect_partition(c);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Each share by itself, however long the others are.
TEST(ShareChunks, OfOneShareHaveOneSize) {
  const std::vector<std::uint64_t> counts = {100'000, 66'000, 0, 5};
  ShareTables tables(4);
  GroupShape group;
  group.ranks = {{0, 1}, {2, 3}};
  const ShareChunks chunks(shm::make_sharding({.tensor = 1,
                                               .count = sum(counts),
                                               .dtype = DType::f32,
                                               .chunk_bytes = 256 << 10,
                                               .version = shm::CutVersion::even,
                                               .nodes = 2,
                                               .shares = 4,
                                               .largest_share = 100'000}),
                           group, kNoSlot, tables.take(counts));
  ASSERT_EQ(chunks.owned(0), 4u);
  EXPECT_EQ(chunks.size(0), 53'248u);
  EXPECT_EQ(chunks.size(4), 46'752u);
  EXPECT_EQ(chunks.begin(4), 53'248u);
  EXPECT_EQ(chunks.size(1), 36'864u);
  EXPECT_EQ(chunks.size(5), 29'136u);
  EXPECT_EQ(chunks.begin(5), 136'864u);
  ASSERT_EQ(chunks.owned(1), 1u);
  EXPECT_EQ(chunks.size(3), 5u);
}

TEST(ShareChunks, AShareLongerThanTheOthersHasTheLastRoundsToItself) {
  expect_partition({.ranks = {{0}, {1}}, .counts = {1, 1000}, .lanes = 3});
}

}  // namespace share_chunks_test
}  // namespace tern::collective
