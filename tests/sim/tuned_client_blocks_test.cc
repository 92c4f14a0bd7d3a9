// Tensors with client_blocks and `recipe=auto`: clients encode by what the tuner has told them with
// the operation before.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "block_clients.h"

namespace tern::sim {
namespace tuned_client_blocks_test {

using Ranks = std::set<std::uint32_t>;
constexpr std::uint64_t kCount = 40'000;

DaemonShape with_tuner() {
  DaemonShape shape;
  shape.lanes = 2;
  shape.tuner = true;
  return shape;
}

TensorSpec tuned(std::uint64_t count = kCount) {
  TensorSpec spec;
  spec.name = "t";
  spec.count = count;
  spec.role = Role::gradient;
  spec.recipe = "auto";
  return spec;
}

// Three nodes, of which the first leads. Nodes 0 and 2 have one rank each, 0 and 3.
struct Job {
  explicit Job(const Ranks& with_blocks, std::uint64_t count = kCount,
               const DaemonShape& shape = with_tuner())
      : cluster({1, 2, 1}, shape),
        inputs((cluster.join(), inputs_of(DType::f32, count, 4))),
        clients(cluster, tuned(count), with_blocks) {}

  // What each step would give exactly.
  std::vector<double> exact() const {
    std::vector<double> sum(inputs[0].size() / sizeof(float));
    for (const Bytes& input : inputs) {
      const auto values = floats_of(DType::f32, input);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += double{values[i]};
    }
    return sum;
  }

  std::vector<float> step() {
    const std::uint64_t count = inputs[0].size() / sizeof(float);
    return floats_of(DType::f32, clients.reduce(all_reduce(DType::f32, count), inputs));
  }
  void set_policy(const std::string& policy) {
    for (std::size_t node = 0; node < 3; ++node) {
      ASSERT_TRUE(cluster.world.daemon(node).tuning->set_policy(policy));
    }
  }
  // For each element the sum over so many steps.
  std::vector<double> sum_of(int steps) {
    std::vector<double> sum(inputs[0].size() / sizeof(float));
    for (int i = 0; i < steps; ++i) {
      const auto result = step();
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += double{result[e]};
    }
    return sum;
  }
  nlohmann::json explained(std::size_t node) {
    const auto rows = cluster.world.daemon(node).tuning->explain("t", daemon::Scope::of_all());
    return rows ? rows->at(0) : nlohmann::json(rows.error().text);
  }

  Cluster cluster;
  std::vector<Bytes> inputs;
  BlockClients clients;
};

class TunedClientBlocks : public testing::TestWithParam<Ranks> {};
INSTANTIATE_TEST_SUITE_P(Of, TunedClientBlocks, testing::Values(Ranks{0}, Ranks{3}, Ranks{0, 3}));

TEST_P(TunedClientBlocks, AreCompressedAndOweNothingInTheLongRun) {
  Job job(GetParam());
  constexpr int kSteps = 80;
  const auto sum = job.sum_of(kSteps);
  // Contributions and results of three nodes, of which one counts for two ranks.
  constexpr std::uint64_t kRawBytes = std::uint64_t{4} * (2 + 2) * kCount / 3 * sizeof(float);
  EXPECT_LT(job.clients.sent, kRawBytes * 6 / 10) << "it was never compressed";
  double error = 0.0, length = 0.0;
  const auto exact = job.exact();
  for (std::size_t i = 0; i < sum.size(); ++i) {
    error += std::pow(sum[i] / kSteps - exact[i], 2);
    length += std::pow(exact[i], 2);
  }
  EXPECT_LT(std::sqrt(error / length), 0.02);
  for (const std::uint32_t rank : GetParam()) {
    const std::size_t node = rank == 0 ? 0 : 2;
    EXPECT_NE(job.clients.blocks[rank]->next_by.recipe, 0) << job.explained(node);
    EXPECT_GT(job.explained(node).value("residual_ratio", 0.0), 0.0) << job.explained(node);
  }
}

TEST_P(TunedClientBlocks, OfALosslessLevelGiveTheBitsOfRaw) {
  Job job(GetParam());
  job.set_policy("t lossless");
  const auto first = job.step();
  for (int i = 0; i < 30; ++i) EXPECT_EQ(job.step() == first, true) << i;
}

// What is owed comes with the first block that loses nothing. A client hears of it with the op
// before, of which the leading node may have spoken one op before that.
TEST_P(TunedClientBlocks, PayBackAllWhenTheLevelMayLoseNothing) {
  Job job(GetParam());
  const auto exact = job.exact();
  constexpr int kSteps = 40;
  constexpr int kLast = 4;
  auto sum = job.sum_of(kSteps - kLast);
  EXPECT_GT(job.clients.blocks[*GetParam().begin()]->next_by.recipe, 0);
  job.set_policy("t lossless");
  const auto rest = job.sum_of(kLast);
  double worst = 0.0, most = 0.0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    worst = std::max(worst, std::abs(sum[i] + rest[i] - kSteps * exact[i]));
    most = std::max(most, std::abs(exact[i]));
  }
  EXPECT_LT(worst, 1e-4 * kSteps * most);
}

// Of an op that failed nothing was sent: what it would have carried is owed still.
TEST_P(TunedClientBlocks, OweStillWhatAFailedOperationWouldHaveCarried) {
  Job job(GetParam());
  job.sum_of(30);
  const auto owed = [&](std::uint32_t rank) {
    std::vector<float> residual(kCount);
    job.clients.blocks[rank]->contributions.write_residual(residual);
    return residual;
  };
  std::vector<std::vector<float>> before;
  for (const std::uint32_t rank : GetParam()) before.push_back(owed(rank));
  EXPECT_TRUE(std::ranges::any_of(before[0], [](float value) { return value != 0.0f; }));
  const auto pending = job.clients.submit(all_reduce(DType::f32, kCount), job.inputs);
  job.cluster.ranks[1]->cancel(pending.tickets[1]);
  job.cluster.finish(pending);
  job.cluster.expect_all(pending, Errc::cancelled);
  job.cluster.forget_arenas();
  std::size_t place = 0;
  for (const std::uint32_t rank : GetParam()) {
    EXPECT_EQ(owed(rank) == before[place], false) << "it had been encoded";
    job.clients.blocks[rank]->contributions.take_back();
    EXPECT_EQ(owed(rank) == before[place++], true);
  }
  job.sum_of(10);
}

// What its client has no encoder for is nothing that the leading node would choose.
TEST_P(TunedClientBlocks, WithoutAnEncoderAreChosenRaw) {
  Job job(GetParam());
  for (const std::uint32_t rank : GetParam()) job.clients.blocks[rank]->has_no_encoder = true;
  job.sum_of(60);
  std::map<std::uint32_t, int> told;  // another recipe than raw, by rank
  for (int i = 0; i < 20; ++i) {
    job.step();
    for (const std::uint32_t rank : GetParam()) {
      told[rank] += job.clients.blocks[rank]->next_by.recipe != 0 ? 1 : 0;
    }
  }
  for (const std::uint32_t rank : GetParam()) {
    EXPECT_LE(told[rank], 4) << rank << " but for trials";
    std::size_t allowed = 0;
    const nlohmann::json row = job.explained(rank == 0 ? 0 : 2);
    for (const auto& candidate : row["candidates"])
      allowed += candidate.value("allowed", false) ? 1 : 0;
    EXPECT_LT(allowed, row["candidates"].size() - 1) << row;
    EXPECT_TRUE(contains(row["candidates"].dump(), "its client has no encoder")) << row;
  }
}

// What this node contributes has it, and no result that this node makes.
TEST_P(TunedClientBlocks, AValueThatIsNotFiniteIsAnAlarm) {
  Job job(GetParam());
  job.sum_of(15);
  for (const std::uint32_t rank : GetParam()) {
    const std::size_t node = rank == 0 ? 0 : 2;
    const auto before = job.explained(node).value("alarms", 0);
    const blocks::Layout& layout = job.clients.blocks[rank]->layout;
    std::uint64_t chunk = 0;
    while (layout.owns(layout.chunk(chunk))) ++chunk;
    const Bytes finite = job.inputs[rank];
    auto values = floats_of(DType::f32, finite);
    values[layout.chunk(chunk).begin] = std::numeric_limits<float>::infinity();
    job.inputs[rank] = bytes_of(DType::f32, values);
    job.step();
    job.inputs[rank] = finite;
    job.step();
    EXPECT_GT(job.explained(node).value("alarms", 0), before) << job.explained(node);
  }
}

// What the program of the leading node takes to encode counts, however quick lanes are.
TEST(TunedClientBlocksOfASlowProgram, AreChosenRaw) {
  for (const Ranks& ranks : {Ranks{0}, Ranks{0, 3}}) {
    Job job(ranks);
    for (const std::uint32_t rank : ranks) job.clients.blocks[rank]->takes_ns = 1'000'000'000;
    job.sum_of(80);
    EXPECT_EQ(job.clients.blocks[0]->next_by.recipe, 0) << job.explained(0);
    double longest_us = 0.0;
    const nlohmann::json row = job.explained(0);
    for (const auto& candidate : row["candidates"]) {
      longest_us = std::max(longest_us, candidate.value("client_us", 0.0));
    }
    EXPECT_GT(longest_us, 5e5) << row;
  }
}

// A tensor that travels with its announcements has no elements on a node with blocks, of which the
// tuner could see what recipes lose.
TEST(TunedClientBlocksOfASmallTensor, GoRawWhereTheLeadingNodeHasThem) {
  DaemonShape shape = with_tuner();
  shape.eager_bytes = 64 << 10;
  shape.lossy_min_bytes = 1 << 10;
  shape.adjust = [](daemon::ConductorSettings& settings) { settings.ops.eager_form = 3; };
  Job job(Ranks{0}, 2'000, shape);
  EXPECT_EQ(job.clients.blocks[0]->layout.said().travels_whole, 1u);
  const auto first = job.step();
  for (int i = 0; i < 30; ++i) EXPECT_EQ(job.step() == first, true) << i;
  EXPECT_EQ(job.explained(0).value("recipe", ""), "raw");
}

// ---- What cannot be -----------------------------------------------------------------------------

struct Refusal {
  const char* name;
  std::uint8_t client_blocks;
  const char* recipe;
  const char* word;
};
std::ostream& operator<<(std::ostream& out, const Refusal& refusal) { return out << refusal.name; }
class RefusedTunedBlocks : public testing::TestWithParam<Refusal> {};
INSTANTIATE_TEST_SUITE_P(
    Declarations, RefusedTunedBlocks,
    testing::Values(Refusal{"older library", shm::kBlocksByRecipe, "auto", "newer libtern"},
                    Refusal{"replay", shm::kBlocksByTuner, "replay:x", "log of choices"},
                    Refusal{"unknown form", 3, "auto", "unknown form of client_blocks 3"}));

TEST_P(RefusedTunedBlocks, SayWhy) {
  Cluster cluster({1, 2, 1}, with_tuner());
  cluster.join();
  TensorSpec spec = tuned();
  spec.recipe = GetParam().recipe;
  spec.client_blocks = true;
  spec.blocks_form = GetParam().client_blocks;
  Client& client = *cluster.ranks[0];
  const std::uint64_t request = client.declare(spec);
  ASSERT_TRUE(cluster.await(client, request));
  EXPECT_NE(client.status_of(request).status, Errc::ok);
  EXPECT_TRUE(contains(client.status_of(request).detail, GetParam().word))
      << client.status_of(request).detail;
}

TEST(TunedRecipes, AreToldOfTunedTensorsAlone) {
  Cluster cluster({1, 2, 1}, with_tuner());
  cluster.join();
  TensorSpec spec = tuned();
  spec.recipe = "3lc:s=1";
  spec.client_blocks = true;
  Client& client = *cluster.ranks[0];
  std::uint64_t request = client.declare(spec);
  ASSERT_TRUE(cluster.await(client, request));
  const Tensor* const tensor = client.adopt_declare(request, spec);
  request = client.ask_of(shm::PacketKind::tensor_recipes, tensor->id);
  ASSERT_TRUE(cluster.await(client, request));
  EXPECT_EQ(client.status_of(request).status, Errc::bad_recipe);
}

}  // namespace tuned_client_blocks_test
}  // namespace tern::sim
