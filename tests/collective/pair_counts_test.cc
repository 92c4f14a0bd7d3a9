#include "collective/pair_counts.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "plan/shares.h"

namespace tern::collective {
namespace pair_counts_test {
namespace {

// Node 0 has the ranks 0 and 3, node 1 the rank 1, node 2 the rank 2.
GroupShape shape_of(std::uint32_t node) {
  GroupShape shape;
  shape.node = node;
  shape.ranks = {{0, 3}, {1}, {2}};
  return shape;
}
constexpr std::size_t kRanks = 4;

// What every rank has for every rank: row by row of who sends.
using Matrix = std::vector<std::uint64_t>;

const Matrix kCounts = {5,  1, 0, 2,   //
                        0,  7, 3, 10,  //
                        4,  6, 8, 9,   //
                        11, 0, 0, 12};

std::vector<std::uint64_t> counts_of(const Matrix& matrix, std::uint32_t rank) {
  std::vector<std::uint64_t> counts;
  for (std::uint32_t to = 0; to < kRanks; ++to) counts.push_back(matrix[rank * kRanks + to]);
  for (std::uint32_t from = 0; from < kRanks; ++from)
    counts.push_back(matrix[from * kRanks + rank]);
  return counts;
}

// What the node's ranks have said.
void say_all(PairCounts& counts, const GroupShape& shape, const Matrix& matrix) {
  for (std::uint32_t local = 0; local < shape.local_ranks(); ++local) {
    counts.say(local, counts_of(matrix, shape.ranks[shape.node][local]));
  }
}

TEST(PairCounts, OfARankThatHasSaidNothingAreZero) {
  const GroupShape shape = shape_of(0);
  PairCounts counts(shape);
  counts.say(1, counts_of(kCounts, 3));
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(counts.sent(0, rank), 0u);
    EXPECT_EQ(counts.received(0, rank), 0u);
    EXPECT_EQ(counts.sent(1, rank), kCounts[3 * kRanks + rank]);
  }
}

TEST(PairCounts, ThereAndBackAreApart) {
  const GroupShape shape = shape_of(0);
  PairCounts counts(shape);
  say_all(counts, shape, kCounts);
  EXPECT_EQ(counts.sent(0, 3), 2u);
  EXPECT_EQ(counts.received(0, 3), 11u);
  EXPECT_EQ(counts.sent(1, 0), 11u);
  EXPECT_EQ(counts.received(1, 0), 2u);
  EXPECT_EQ(counts.sent(0, 0), counts.received(0, 0));
}

TEST(PairCounts, PairsLieOneBehindTheOther) {
  const GroupShape shape = shape_of(0);
  PairCounts counts(shape);
  say_all(counts, shape, kCounts);
  const std::vector<std::uint64_t> sent = {0, 5, 6, 6}, received = {0, 2, 12, 21};
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(counts.sent_begin(0, rank), sent[rank]);
    EXPECT_EQ(counts.received_begin(1, rank), received[rank]);
  }
}

TEST(PairCounts, WhatIsSaidAgainReplacesWhatWasSaid) {
  const GroupShape shape = shape_of(1);
  PairCounts counts(shape);
  counts.say(0, std::vector<std::uint64_t>(2 * kRanks, 100));
  counts.say(0, counts_of(kCounts, 1));
  EXPECT_EQ(counts.sent_begin(0, 3), 10u);
  EXPECT_EQ(counts.received(0, 2), 6u);
  counts.clear();
  EXPECT_EQ(counts.sent(0, 3), 0u);
  EXPECT_EQ(counts.received_begin(0, 3), 0u);
}

TEST(PairCounts, CountsMayBeAsLargeAsAnOp) {
  const GroupShape shape = shape_of(2);
  PairCounts counts(shape);
  std::vector<std::uint64_t> most(2 * kRanks);
  most[1] = plan::kMaxElements;
  counts.say(0, most);
  EXPECT_EQ(counts.sent(0, 1), plan::kMaxElements);
  EXPECT_EQ(counts.sent_begin(0, 1), 0u);
  EXPECT_EQ(counts.sent_begin(0, 3), plan::kMaxElements);
  EXPECT_EQ(counts.received(0, 1), 0u);
}

// What every node knows of the matrix.
struct Known {
  explicit Known(const Matrix& matrix) {
    for (std::uint32_t node = 0; node < shapes.size(); ++node) {
      counts.emplace_back(shapes[node]);
      say_all(counts[node], shapes[node], matrix);
    }
  }

  const std::vector<GroupShape> shapes = {shape_of(0), shape_of(1), shape_of(2)};
  std::vector<PairCounts> counts;
};

TEST(PairChecksums, AreTheSameAtBothEnds) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 200; ++round) {
    Matrix matrix(kCounts.size());
    for (std::uint64_t& count : matrix) count = random() % 3 == 0 ? 0 : random() % 1000;
    const Known known(matrix);
    for (std::uint32_t from = 0; from < 3; ++from) {
      for (std::uint32_t to = 0; to < 3; ++to) {
        ASSERT_EQ(known.counts[from].sent_crc(to), known.counts[to].received_crc(from))
            << "round " << round << ", from node " << from << " to node " << to;
      }
    }
  }
}

TEST(PairChecksums, AreOfThePairsOfTwoNodesAlone) {
  const std::vector<std::uint32_t> node_of = {0, 1, 2, 0};
  const Known known(kCounts);
  for (std::uint32_t from = 0; from < kRanks; ++from) {
    for (std::uint32_t to = 0; to < kRanks; ++to) {
      Matrix other = kCounts;
      ++other[from * kRanks + to];
      const Known now(other);
      for (std::uint32_t sender = 0; sender < 3; ++sender) {
        for (std::uint32_t receiver = 0; receiver < 3; ++receiver) {
          const bool meant = node_of[from] == sender && node_of[to] == receiver;
          EXPECT_EQ(
              now.counts[sender].sent_crc(receiver) != known.counts[sender].sent_crc(receiver),
              meant)
              << "rank " << from << " to " << to << ", node " << sender << " to " << receiver;
        }
      }
    }
  }
}

// 0 would mean that nothing was said.
TEST(PairChecksums, AreNeverZero) {
  const Known known(Matrix(kCounts.size(), 0));
  for (const PairCounts& counts : known.counts) {
    for (std::uint32_t node = 0; node < 3; ++node) {
      EXPECT_NE(counts.sent_crc(node), 0u);
      EXPECT_NE(counts.received_crc(node), 0u);
    }
  }
  GroupShape without = shape_of(0);
  without.ranks[2].clear();
  without.ranks[1] = {1, 2};
  EXPECT_EQ(PairCounts(without).sent_crc(2), 1u) << "it has no rank";
}

TEST(PairTables, GiveEmptyOnesAgain) {
  GroupShape shape;
  shape.ranks = {{0, 1}};
  PairTables tables(shape);
  PairCounts* const first = tables.take();
  first->say(1, std::vector<std::uint64_t>{1, 2, 3, 4});
  EXPECT_EQ(first->sent(1, 1), 2u);
  EXPECT_EQ(first->received_begin(1, 1), 3u);
  EXPECT_NE(tables.take(), first);
  tables.give(nullptr);
  tables.give(first);
  EXPECT_EQ(tables.take(), first);
  EXPECT_EQ(first->sent(1, 1), 0u);
}

}  // namespace
}  // namespace pair_counts_test
}  // namespace tern::collective
