// libtern_blocks through real daemons: bits, what ends and what is kept, and what ternctl shows.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "blocks/include/tern/blocks.hpp"
#include "client_lib/include/tern/tern.hpp"
#include "tests/e2e/cluster.h"

namespace tern::e2e {
namespace {

constexpr std::uint64_t kCount = 200'001;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

std::vector<float> values_of(std::size_t rank, int step) {
  std::vector<float> values(kCount);
  std::uint32_t drawn = 2654435761u * (static_cast<std::uint32_t>(rank) +
                                       17u * static_cast<std::uint32_t>(step) + 1u);
  for (float& value : values) {
    drawn = drawn * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<std::int32_t>(drawn) >> 8) * 1e-6f;
  }
  return values;
}

// One rank on each of two nodes, in a group.
class BlocksOfRanks : public testing::Test {
 protected:
  struct Rank {
    std::optional<Client> client;
    std::optional<Group> group;
    std::optional<Tensor> tensor;
    std::optional<Blocks> blocks;
    std::optional<Ticket> ticket;
    std::vector<float> values;

    void begin(tern_reduction reduction = TERN_AVERAGE) {
      if (blocks) return blocks->all_reduce(std::span(values), reduction);
      ticket.emplace(group->all_reduce(*tensor, std::span(values), reduction));
    }
    void end() {
      if (blocks) {
        blocks->wait();
      } else {
        ticket->wait();
        ticket.reset();
      }
    }
  };

  void SetUp() override { ASSERT_TRUE(cluster_.running()); }

  // The group that was before is left. Nothing is kept of it: this is another job.
  void join() {
    const std::string job = "job" + std::to_string(++joins_);
    for (Rank& rank : ranks_) {
      rank = Rank{};
      tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
      const std::string path = cluster_[&rank == &ranks_[0] ? 0 : 1].socket();
      options.socket_path = path.c_str();
      options.arena_bytes = 8 << 20;
      options.job = job.c_str();
      rank.client.emplace(options);
    }
    const tern_group_id id = ranks_[0].client->mint();
    std::vector<std::thread> threads;
    threads.reserve(2);
    for (std::int32_t number = 0; number < 2; ++number) {
      threads.emplace_back([this, number, &id] {
        tern_join_options options = TERN_JOIN_OPTIONS_INIT;
        options.rank = number;
        options.size = 2;
        options.op_timeout_ms = 60'000;
        Rank& rank = ranks_[static_cast<std::size_t>(number)];
        rank.group.emplace(rank.client->join(id, options));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void declare(std::size_t number, const std::string& recipe, bool with_blocks) {
    Rank& rank = ranks_[number];
    rank.blocks.reset();
    rank.tensor.reset();
    // Lanes let go of it first: what is declared before that begins at zero.
    EXPECT_TRUE(eventually([&] { return cluster_[number].ask("tensors").empty(); }));
    tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
    options.name = "gradient";
    options.count = kCount;
    options.role = TERN_GRADIENT;
    options.recipe = recipe.c_str();
    options.client_blocks = with_blocks ? 1 : 0;
    rank.tensor.emplace(rank.group->declare(options));
    if (with_blocks) rank.blocks.emplace(*rank.client, *rank.group, *rank.tensor);
  }
  // All ranks' results, which are alike.
  std::vector<float> step(int number) {
    for (std::size_t i = 0; i < 2; ++i) ranks_[i].values = values_of(i, number);
    for (Rank& rank : ranks_) rank.begin();
    for (Rank& rank : ranks_) rank.end();
    EXPECT_TRUE(same_bits(ranks_[0].values, ranks_[1].values));
    return ranks_[0].values;
  }

  Cluster cluster_{2, {"--chunk-bytes", "64KiB", "--state-ttl", "60s"}};
  int joins_ = 0;
  Rank ranks_[2];
};

class BlocksByRecipe : public BlocksOfRanks, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, BlocksByRecipe,
                         testing::Values("raw", "3lc:s=1", "ef(int:bits=4+huffman)",
                                         "ef(topk:p=0.01)", "none(bf16)", "lossless"));

TEST_P(BlocksByRecipe, GiveTheBitsOfElements) {
  std::vector<std::vector<float>> elements;
  for (const auto& [first, second] : {std::pair{false, false}, {true, false}, {true, true}}) {
    join();
    declare(0, GetParam(), first);
    declare(1, GetParam(), second);
    for (int number = 0; number < 3; ++number) {
      const std::vector<float> got = step(number);
      if (!first) {
        elements.push_back(got);
      } else {
        EXPECT_TRUE(same_bits(got, elements[static_cast<std::size_t>(number)])) << number;
      }
    }
  }
}

// Whoever encodes next, a daemon or a rank, goes on with what is owed.
TEST_F(BlocksOfRanks, KeepTheirResidualForTheNextDeclaration) {
  join();
  std::vector<std::vector<float>> expected;
  expected.reserve(3);
  for (std::size_t i = 0; i < 2; ++i) declare(i, "3lc:s=1", false);
  for (int number = 0; number < 3; ++number) expected.push_back(step(number));
  for (const bool with_blocks : {false, true}) {
    join();
    int number = 0;
    for (const bool now : {with_blocks, false, with_blocks}) {
      for (std::size_t i = 0; i < 2; ++i) declare(i, "3lc:s=1", now);
      EXPECT_EQ(step(number) == expected[static_cast<std::size_t>(number)], true)
          << number << (with_blocks ? " with blocks" : " with elements");
      ++number;
    }
  }
}

// Whatever is chosen on the way: when nothing may be lost any more, all that was owed arrives.
TEST_F(BlocksOfRanks, GoByTheTunersChoiceAndPayBackWhatTheyOwe) {
  join();
  constexpr int kSteps = 40;
  constexpr int kExact = 5;  // the last ones
  std::vector<double> sent(kCount), given(kCount);
  for (int number = 0; number < kSteps; ++number) {
    // Whoever encodes next, a daemon or a rank, goes on with what is owed.
    if (number % 15 == 0) {
      declare(0, "auto", true);
      declare(1, "auto", number % 2 == 0);
    }
    if (number == kSteps - kExact) {
      for (std::size_t i = 0; i < 2; ++i) cluster_[i].ternctl({"policy", "gradient lossless"});
    }
    const std::vector<float> got = step(number);
    const auto first = values_of(0, number), second = values_of(1, number);
    for (std::size_t e = 0; e < kCount; ++e) {
      sent[e] += double{got[e]};
      given[e] += (double{first[e]} + double{second[e]}) / 2;
    }
  }
  double worst = 0.0;
  for (std::size_t e = 0; e < kCount; ++e) worst = std::max(worst, std::abs(sent[e] - given[e]));
  EXPECT_LT(worst, 1e-4 * kSteps);
  const auto tuned = cluster_[0].ask("tuner");
  ASSERT_EQ(tuned.size(), 1u) << tuned;
  EXPECT_EQ(tuned[0].value("name", ""), "gradient");
  EXPECT_GE(cluster_[0].counter("samples"), 1) << "of its own chunks";
  const std::string shown = cluster_[0].ternctl({"tensors"});
  EXPECT_NE(shown.find("by client"), std::string::npos) << shown;
}

TEST_F(BlocksOfRanks, ExportPartsThatDaemonsTake) {
  join();
  for (std::size_t i = 0; i < 2; ++i) declare(i, "3lc:s=1", true);
  (void)step(0);
  std::vector<std::vector<std::byte>> parts;
  for (Rank& rank : ranks_) parts.push_back(rank.blocks->export_state());
  const std::vector<float> expected = step(1);
  join();
  for (std::size_t i = 0; i < 2; ++i) declare(i, "3lc:s=1", i == 1);
  ranks_[0].tensor->import_state(parts);
  ranks_[1].blocks->import_state(parts);
  EXPECT_EQ(step(1) == expected, true);
}

TEST_F(BlocksOfRanks, MayBeWaitedForALittle) {
  join();
  for (std::size_t i = 0; i < 2; ++i) declare(i, "3lc:s=1", i == 0);
  for (std::size_t i = 0; i < 2; ++i) ranks_[i].values = values_of(i, 0);
  ranks_[0].begin();
  EXPECT_FALSE(ranks_[0].blocks->wait(20));
  EXPECT_THROW(ranks_[0].blocks->wait(-2), Failure);  // and the operation goes on
  EXPECT_THROW(ranks_[0].begin(), Failure);           // one at a time
  ranks_[1].begin();
  ranks_[0].end();
  ranks_[1].end();
  EXPECT_EQ(ranks_[0].values == ranks_[1].values, true);
  EXPECT_THROW(ranks_[0].blocks->wait(), Failure);  // there is none
}

// The wait ends, and says why; what was to be sent is still owed.
TEST_F(BlocksOfRanks, EndWithTheirDaemon) {
  join();
  for (std::size_t i = 0; i < 2; ++i) declare(i, "3lc:s=1", true);
  ranks_[0].values = values_of(0, 0);
  const std::vector<float> before = ranks_[0].values;
  ranks_[0].begin();
  cluster_[0].process().kill();
  try {
    ranks_[0].blocks->wait();
    ADD_FAILURE() << "the daemon is gone";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), TERN_ERR_DAEMON_LOST) << failure.what();
  }
  EXPECT_EQ(ranks_[0].values == before, true) << "a result was written";
  EXPECT_THROW(ranks_[0].begin(), Failure);
}

TEST_F(BlocksOfRanks, EndWhenTheOtherNodeIsLost) {
  join();
  for (std::size_t i = 0; i < 2; ++i) declare(i, "3lc:s=1", true);
  ranks_[0].values = values_of(0, 0);
  const std::vector<float> before = ranks_[0].values;
  ranks_[0].begin();
  cluster_[1].process().kill();
  EXPECT_THROW(ranks_[0].blocks->wait(), Failure);
  EXPECT_EQ(ranks_[0].values == before, true) << "a result was written";
}

TEST_F(BlocksOfRanks, AreRefusedWhatTheyCannotDo) {
  join();
  declare(0, "3lc:s=1", true);
  ranks_[0].values = values_of(0, 0);
  const auto refused = [&](auto change, const char* word) {
    tern_op op = TERN_OP_INIT;
    op.input = op.output = ranks_[0].values.data();
    change(op);
    try {
      ranks_[0].blocks->all_reduce(op);
      ADD_FAILURE() << word;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status(), TERN_ERR_INVALID_ARGUMENT);
      EXPECT_NE(std::strstr(failure.what(), word), nullptr) << failure.what();
    }
  };
  refused([](tern_op& op) { op.recipe = "raw"; }, "recipe of its own");
  refused([](tern_op& op) { op.struct_size = 8; }, "_INIT macro");
  refused([](tern_op& op) { op.prescale = std::numeric_limits<float>::quiet_NaN(); }, "finite");
  refused([](tern_op& op) { op.wait_event = 1; }, "events");
  refused([](tern_op& op) { op.input = op.output = nullptr; }, "NULL");
  declare(1, "3lc:s=1", false);
  tern_blocks* blocks = nullptr;
  EXPECT_EQ(tern_blocks_create(ranks_[1].client->get(), ranks_[1].group->get(),
                               ranks_[1].tensor->get(), &blocks),
            TERN_ERR_UNKNOWN_TENSOR);
  EXPECT_EQ(blocks, nullptr);
  EXPECT_EQ(tern_blocks_create(nullptr, nullptr, nullptr, &blocks), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_blocks_release(nullptr), TERN_OK);
}

TEST_F(BlocksOfRanks, AreSeenByTheOperator) {
  join();
  declare(0, "3lc:s=1", true);
  declare(1, "3lc:s=1", false);
  (void)step(0);
  EXPECT_TRUE(cluster_[0].ask("tensors")[0]["client_blocks"].get<bool>());
  EXPECT_FALSE(cluster_[1].ask("tensors")[0]["client_blocks"].get<bool>());
  EXPECT_NE(cluster_[0].ternctl({"tensors"}).find("client"), std::string::npos)
      << cluster_[0].ternctl({"tensors"});
  EXPECT_GT(cluster_[0].counter("client_blocks"), 0);
  EXPECT_EQ(cluster_[1].counter("client_blocks"), 0);
}

}  // namespace
}  // namespace tern::e2e
