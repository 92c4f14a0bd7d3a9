#include "collective/pair_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "plan/all_to_all.h"
#include "plan/cut.h"

namespace tern::collective {
namespace pair_chunks_test {

constexpr std::uint64_t kElements = 16;  // of a chunk

// What every rank has for every rank, and what each node makes of it.
struct Group {
  std::vector<std::vector<std::uint32_t>> ranks;
  std::uint32_t size = 0;
  std::vector<std::uint64_t> counts;  // rank by rank of who sends
  bool equal = false;
  std::uint32_t lanes = 1;
  std::uint64_t spread = 0;
  shm::CutVersion version = shm::CutVersion::full;
  std::uint64_t elements = kElements;  // of a chunk, at most

  std::uint64_t pair(std::uint32_t from, std::uint32_t to) const {
    return counts[std::size_t{from} * size + to];
  }
  std::vector<std::uint64_t> counts_of(std::uint32_t rank) const {
    std::vector<std::uint64_t> list;
    for (std::uint32_t to = 0; to < size; ++to) list.push_back(pair(rank, to));
    for (std::uint32_t from = 0; from < size; ++from) list.push_back(pair(from, rank));
    return list;
  }
  GroupShape shape(std::uint32_t node, std::uint32_t lane) const {
    GroupShape shape;
    shape.node = node;
    shape.lane = lane;
    shape.ranks = ranks;
    return shape;
  }
  shm::Sharding sharding(std::uint32_t rank) const {
    const auto list = counts_of(rank);
    plan::Shape shape;
    shape.ranks = size;
    shape.count = equal ? pair(0, 0) * size : 0;
    shape.counts = equal ? nullptr : list.data();
    return plan::cut(plan::kAllToAll, shape,
                     {.sequence = spread,
                      .chunk_bytes = elements * sizeof(float),
                      .version = version,
                      .nodes = static_cast<std::uint32_t>(ranks.size()),
                      .lanes = lanes});
  }
};

Group draw(std::mt19937_64& random) {
  Group group;
  group.ranks.resize(random() % 4 + 1);
  group.size = static_cast<std::uint32_t>(group.ranks.size() + random() % 4);
  for (std::uint32_t rank = 0; rank < group.size; ++rank) {
    group.ranks[rank < group.ranks.size() ? rank : random() % group.ranks.size()].push_back(rank);
  }
  group.equal = random() % 3 == 0;
  group.counts.assign(std::size_t{group.size} * group.size, random() % 100);
  for (auto& count : group.counts) {
    if (!group.equal) count = random() % 4 == 0 ? 0 : random() % 100;
  }
  group.lanes = static_cast<std::uint32_t>(random() % 3 + 1);
  group.spread = random() % 20;
  return group;
}

// Every element of every pair is in one chunk, which both ends place and count alike.
void expect_both_ends_agree(const Group& group) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> covered;
  for (std::uint32_t lane = 0; lane < group.lanes; ++lane) {
    std::vector<GroupShape> shapes;
    for (std::uint32_t node = 0; node < group.ranks.size(); ++node) {
      shapes.push_back(group.shape(node, lane));
    }
    std::vector<PairCounts> counts(shapes.begin(), shapes.end());
    std::vector<PairChunks> ends;
    for (std::uint32_t node = 0; node < shapes.size(); ++node) {
      for (std::uint32_t i = 0; i < group.ranks[node].size(); ++i) {
        counts[node].say(i, group.counts_of(group.ranks[node][i]));
      }
      ends.emplace_back(group.sharding(group.ranks[node][0]), shapes[node],
                        group.equal ? nullptr : &counts[node]);
    }
    for (std::uint32_t node = 0; node < ends.size(); ++node) {
      std::map<std::uint32_t, std::uint32_t> to_node;
      for (std::uint32_t i = 0; i < ends[node].owned(node); ++i) {
        const std::uint32_t number = ends[node].chunk(node, i);
        const std::uint32_t from = ends[node].sender(number), to = ends[node].receiver(number);
        ASSERT_EQ(group.sharding(from).lane(number), lane);
        const std::uint32_t other = shapes[node].node_of_rank(to);
        ++to_node[other];
        const PairChunks& end = ends[other];
        ASSERT_TRUE(end.has(node, number));
        ASSERT_EQ(end.size(number), ends[node].size(number));
        std::uint64_t before_sent = 0, before_received = 0;
        for (std::uint32_t rank = 0; rank < to; ++rank) before_sent += group.pair(from, rank);
        for (std::uint32_t rank = 0; rank < from; ++rank) before_received += group.pair(rank, to);
        const std::uint64_t place =
            ends[node].begin(number) - plan::pair_inputs_begin(from) - before_sent;
        ASSERT_EQ(end.result_begin(number) - plan::pair_outputs_begin(to) - before_received, place);
        ASSERT_LE(place + end.size(number), group.pair(from, to));
        covered[{from, to}] += end.size(number);
      }
      for (std::uint32_t other = 0; other < ends.size(); ++other) {
        if (other == node) continue;
        ASSERT_EQ(ends[other].received_from(node), to_node[other]);
        if (!group.equal) {
          ASSERT_EQ(counts[node].sent_crc(other), counts[other].received_crc(node));
        }
      }
    }
  }
  for (std::uint32_t from = 0; from < group.size; ++from) {
    for (std::uint32_t to = 0; to < group.size; ++to) {
      ASSERT_EQ((covered[{from, to}]), group.pair(from, to));
    }
  }
}

TEST(PairChunks, BothEndsOfEveryPairAgree) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    expect_both_ends_agree(draw(random));
    if (testing::Test::HasFatalFailure()) return;
  }
}

// A node sends to the others by turns, beginning with itself: every turn has a chunk of each pair
// that has one left, of the same round.
TEST(PairChunks, AreSentToAllByTurns) {
  std::mt19937_64 random(13);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const Group group = draw(random);
    for (std::uint32_t node = 0; node < group.ranks.size(); ++node) {
      const GroupShape shape = group.shape(node, 0);
      PairCounts counts(shape);
      for (std::uint32_t i = 0; i < group.ranks[node].size(); ++i) {
        counts.say(i, group.counts_of(group.ranks[node][i]));
      }
      const PairChunks chunks(group.sharding(group.ranks[node][0]), shape,
                              group.equal ? nullptr : &counts);
      std::uint64_t last_round = 0, last_step = 0;
      for (std::uint32_t i = 0; i < chunks.owned(node); ++i) {
        const std::uint32_t number = chunks.chunk(node, i);
        const std::uint64_t round = number / (group.size * group.size);
        const std::uint32_t receiver = shape.node_of_rank(chunks.receiver(number));
        const std::uint64_t step = (receiver + shape.nodes() - node) % shape.nodes();
        ASSERT_GE(round, last_round);
        if (i != 0 && round == last_round) {
          ASSERT_GE(step, last_step);
        }
        last_round = round;
        last_step = step;
      }
    }
  }
}

TEST(PairChunks, AreTheSameInWhateverOrderTheyAreAskedFor) {
  std::mt19937_64 random(14);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const Group group = draw(random);
    const GroupShape shape = group.shape(0, 0);
    PairCounts counts(shape);
    for (std::uint32_t i = 0; i < group.ranks[0].size(); ++i) {
      counts.say(i, group.counts_of(group.ranks[0][i]));
    }
    const PairChunks chunks(group.sharding(group.ranks[0][0]), shape,
                            group.equal ? nullptr : &counts);
    std::vector<std::uint32_t> in_order;
    for (std::uint32_t i = 0; i < chunks.owned(0); ++i) in_order.push_back(chunks.chunk(0, i));
    EXPECT_EQ(chunks.chunk(0, chunks.owned(0)), kNoSlot);
    for (std::uint32_t i = 0; i < 4 * chunks.owned(0); ++i) {
      const auto index = static_cast<std::uint32_t>(random() % chunks.owned(0));
      ASSERT_EQ(chunks.chunk(0, index), in_order[index]);
    }
  }
}

TEST(PairChunks, BothEndsAgreeOnChunksOfOneSize) {
  std::mt19937_64 random(12);
  for (int round = 0; round < 500; ++round) {
    Group group = draw(random);
    for (auto& count : group.counts) count *= 1000;
    group.version = shm::CutVersion::even;
    group.elements = 4 * shm::kChunkUnit;
    SCOPED_TRACE(testing::Message() << "round " << round);
    expect_both_ends_agree(group);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(PairChunks, ANumberThatIsNoChunkForThisNodeIsNone) {
  Group group;
  group.ranks = {{0}, {1}};
  group.size = 2;
  group.counts = {5, 20, 3, 0};
  const GroupShape shape = group.shape(1, 0);
  PairCounts counts(shape);
  counts.say(0, group.counts_of(1));
  const PairChunks chunks(group.sharding(1), shape, &counts);
  EXPECT_EQ(chunks.received_from(0), 2u);
  EXPECT_TRUE(chunks.has(0, 1)) << "from 0 to 1";
  EXPECT_TRUE(chunks.has(0, 4 + 1)) << "the second round";
  EXPECT_FALSE(chunks.has(0, 8 + 1)) << "there is no third";
  EXPECT_FALSE(chunks.has(0, 0)) << "of node 0 for itself";
  EXPECT_FALSE(chunks.has(0, 2)) << "from rank 1, which is not of node 0";
  EXPECT_FALSE(chunks.has(0, 0xffffffff));
}

}  // namespace pair_chunks_test
}  // namespace tern::collective
