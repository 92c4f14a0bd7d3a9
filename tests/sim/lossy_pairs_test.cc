// An all_to_all whose ops write out a recipe without memory: what leaves a node loses what the
// recipe drops, and nothing else does.

#include <gtest/gtest.h>

#include <algorithm>

#include "cluster.h"

namespace tern::sim {
namespace lossy_pairs_test {

using shm::OpKind;

const std::vector<std::uint32_t> kNodes = {1, 2, 1};
constexpr std::uint32_t kNodeOf[] = {0, 1, 1, 2};
constexpr std::uint32_t kRanks = 4;

// Elements that each rank has for each.
using Counts = std::vector<std::vector<std::uint64_t>>;

Counts equal(std::uint64_t count) {
  return Counts(kRanks, std::vector<std::uint64_t>(kRanks, count));
}

float value_of(std::uint32_t from, std::uint32_t to, std::uint64_t i) {
  const std::uint64_t of_pair = std::uint64_t{131} * from + std::uint64_t{17} * to;
  return static_cast<float>(1 + (i * 7919 + of_pair) % 4001) / 37.0f;
}

std::uint64_t sent_by(const Counts& counts, std::uint32_t rank) {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : counts[rank]) sum += count;
  return sum;
}

std::uint64_t got_by(const Counts& counts, std::uint32_t rank) {
  std::uint64_t sum = 0;
  for (const auto& row : counts) sum += row[rank];
  return sum;
}

struct Exchange {
  Counts counts;
  bool gives_counts = false;
  std::vector<std::string> recipes;  // by rank
};

struct Submitted {
  std::vector<std::uint64_t> tickets, outputs;
};

Submitted submit(Cluster& cluster, const Exchange& exchange) {
  Submitted submitted;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    Client& client = *cluster.ranks[rank];
    OpRequest request;
    request.kind = OpKind::all_to_all;
    request.recipe = exchange.recipes[rank];
    request.count = exchange.gives_counts ? 0 : sent_by(exchange.counts, rank);
    std::vector<float> input;
    for (std::uint32_t to = 0; to < kRanks; ++to) {
      for (std::uint64_t i = 0; i < exchange.counts[rank][to]; ++i) {
        input.push_back(value_of(rank, to, i));
      }
    }
    if (exchange.gives_counts) {
      request.counts = exchange.counts[rank];
      for (std::uint32_t from = 0; from < kRanks; ++from) {
        request.counts.push_back(exchange.counts[from][rank]);
      }
    }
    const Bytes bytes = bytes_of(DType::f32, input);
    request.input = client.allocate(bytes.size() + 64);
    std::copy(bytes.begin(), bytes.end(), client.at(request.input));
    request.output = client.allocate(got_by(exchange.counts, rank) * sizeof(float) + 64);
    submitted.outputs.push_back(request.output);
    submitted.tickets.push_back(client.submit(request, nullptr));
  }
  return submitted;
}

OpResult result_of(Cluster& cluster, std::uint32_t rank, std::uint64_t ticket) {
  Client& client = *cluster.ranks[rank];
  EXPECT_TRUE(cluster.world.run_until([&] { return client.done(ticket); }));
  return client.result(ticket);
}

// As bf16, which is what the recipe makes of it.
float rounded(float value) {
  return floats_of(DType::bf16, bytes_of(DType::bf16, {value})).front();
}

std::uint64_t expect_rounded_between_nodes(Cluster& cluster, const Exchange& exchange) {
  const Submitted submitted = submit(cluster, exchange);
  std::uint64_t sent = 0;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const OpResult result = result_of(cluster, rank, submitted.tickets[rank]);
    EXPECT_EQ(result.status, Errc::ok) << result.detail;
    if (rank != 2) sent += result.bytes_sent;
    const std::byte* const at = cluster.ranks[rank]->at(submitted.outputs[rank]);
    const auto got =
        floats_of(DType::f32, Bytes(at, at + got_by(exchange.counts, rank) * sizeof(float)));
    std::size_t place = 0;
    for (std::uint32_t from = 0; from < kRanks; ++from) {
      const bool here = kNodeOf[from] == kNodeOf[rank];
      for (std::uint64_t i = 0; i < exchange.counts[from][rank]; ++i, ++place) {
        const float value = value_of(from, rank, i);
        EXPECT_EQ(got[place], here ? value : rounded(value)) << from << " to " << rank;
        if (got[place] != (here ? value : rounded(value))) return sent;
      }
    }
  }
  cluster.forget_arenas();
  return sent;
}

TEST(LossyPairs, LoseWhatTheRecipeDropsWhereTheyLeaveTheirNode) {
  DaemonShape shape;
  shape.lanes = 2;
  Cluster cluster(kNodes, shape);
  cluster.join();
  // Of 16 pairs ten leave their node.
  const std::uint64_t raw = std::uint64_t{10} * 6'000 * sizeof(float);
  const std::uint64_t sent =
      expect_rounded_between_nodes(cluster, {equal(6'000), false, {4, "bf16"}});
  EXPECT_LT(sent, raw * 6 / 10);
  EXPECT_GT(sent, raw * 4 / 10);
}

TEST(LossyPairs, HaveCountsTooAndSomeAreEmpty) {
  DaemonShape shape;
  shape.lanes = 2;
  Cluster cluster(kNodes, shape);
  cluster.join();
  Counts counts = equal(0);
  for (std::uint32_t from = 0; from < kRanks; ++from) {
    for (std::uint32_t to = 0; to < kRanks; ++to)
      counts[from][to] = (std::uint64_t{5} * from + std::uint64_t{3} * to) % 7 * 1'500;
  }
  expect_rounded_between_nodes(cluster, {counts, true, {4, "none(bf16)"}});
}

TEST(LossyPairs, OnesThatFitInTheirAnnouncementsAreCompressed) {
  DaemonShape shape;
  shape.eager_bytes = 8 << 10;
  shape.lossy_min_bytes = 256;
  Cluster cluster(kNodes, shape);
  cluster.join();
  expect_rounded_between_nodes(cluster, {equal(100), false, {4, "bf16"}});
}

TEST(LossyPairs, ARankThatDoesNotAskIsAMismatch) {
  Cluster cluster(kNodes, DaemonShape{});
  cluster.join();
  const Submitted submitted = submit(cluster, {equal(6'000), false, {"bf16", "bf16", "bf16", ""}});
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const OpResult result = result_of(cluster, rank, submitted.tickets[rank]);
    EXPECT_EQ(result.status, Errc::mismatch);
    EXPECT_TRUE(contains(result.detail, "lossy") && contains(result.detail, "exact"))
        << result.detail;
  }
  cluster.forget_arenas();
  expect_rounded_between_nodes(cluster, {equal(6'000), false, {4, "bf16"}});
}

TEST(LossyPairs, AMemoryIsRefused) {
  Cluster cluster(kNodes, DaemonShape{});
  cluster.join();
  const Submitted submitted = submit(cluster, {equal(6'000), false, {4, "ef(int:bits=8)"}});
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(result_of(cluster, rank, submitted.tickets[rank]).status, Errc::bad_recipe);
  }
}

}  // namespace lossy_pairs_test
}  // namespace tern::sim
