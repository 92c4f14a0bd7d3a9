// A parameter server on the ranks, as the library makes it of two tensors and two operations.

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "client_lib/include/tern/tern.hpp"
#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

// Rank 1 of three.
class PushPullOfThree : public ClientTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(connection.status, TERN_OK) << tern_error_detail();
    tern_group_id id{};
    ASSERT_TERN_OK(tern_group_mint(connection.client, &id));
    tern_join_options options = TERN_JOIN_OPTIONS_INIT;
    options.rank = 1;
    options.size = 3;
    ASSERT_TERN_OK(tern_group_join(connection.client, &id, &options, &group));
    client = connection.client;
    daemon.set_ops(Ops::hold);
    values = connection.allocate<float>(64);
  }

  static tern_push_pull_options of(std::uint64_t count) {
    tern_push_pull_options options = TERN_PUSH_PULL_OPTIONS_INIT;
    options.name = "model";
    options.count = count;
    return options;
  }
  tern_push_pull* declare(const tern_push_pull_options& options) {
    tern_push_pull* push_pull = nullptr;
    EXPECT_EQ(tern_push_pull_declare(group, &options, &push_pull), TERN_OK) << tern_error_detail();
    return push_pull;
  }
  std::string refusal(const tern_push_pull_options& options) {
    tern_push_pull* push_pull = nullptr;
    EXPECT_EQ(tern_push_pull_declare(group, &options, &push_pull), TERN_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(push_pull, nullptr);
    return tern_error_detail();
  }
  static std::vector<std::uint64_t> shards(tern_push_pull* push_pull) {
    std::vector<std::uint64_t> counts;
    std::uint64_t end = 0;
    for (std::int32_t rank = 0; rank < 3; ++rank) {
      std::uint64_t begin = 0, count = 0;
      EXPECT_EQ(tern_push_pull_get_shard(push_pull, rank, &begin, &count), TERN_OK);
      EXPECT_EQ(begin, end) << "shards lie behind each other";
      end = begin + count;
      counts.push_back(count);
    }
    return counts;
  }
  shm::SubmitEntry last_entry() {
    daemon.await_entries(++submitted);
    return daemon.seen().back().entry;
  }

  float* values = nullptr;
  std::size_t submitted = 0;
};

TEST_F(PushPullOfThree, ShardsDifferByAnElementOrAreAllOfOneRank) {
  EXPECT_EQ(shards(declare(of(11))), (std::vector<std::uint64_t>{4, 4, 3}));
  tern_push_pull_options one = of(11);
  one.name = "at rank 2";
  one.server = 2;
  EXPECT_EQ(shards(declare(one)), (std::vector<std::uint64_t>{0, 0, 11}));
  tern_push_pull_options few = of(2);
  few.name = "fewer than ranks";
  EXPECT_EQ(shards(declare(few)), (std::vector<std::uint64_t>{1, 1, 0}));
}

TEST_F(PushPullOfThree, DeclaresTwoTensorsAndReleasesThem) {
  tern_push_pull_options options = of(11);
  options.push_recipe = "3lc:s=1.5";
  options.pull_recipe = "3lc:s=1.75";
  options.priority = 7;
  tern_push_pull* const push_pull = declare(options);
  tern_tensor* push = nullptr;
  tern_tensor* pull = nullptr;
  ASSERT_TERN_OK(tern_push_pull_get_tensors(push_pull, &push, &pull));
  EXPECT_NE(push, pull);
  EXPECT_EQ(daemon.request_count(shm::PacketKind::tensor_declare), 2u);
  ASSERT_TERN_OK(tern_push_pull_release(push_pull));
  daemon.await_requests(shm::PacketKind::tensor_release, 2);
}

TEST_F(PushPullOfThree, APushIsAReduceScatterAndAPullAnAllGatherOfTheShards) {
  tern_push_pull_options options = of(11);
  options.reduction = TERN_AVERAGE;
  tern_push_pull* const push_pull = declare(options);
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_push(push_pull, values, values + 32, &ticket));
  shm::SubmitEntry entry = last_entry();
  EXPECT_EQ(entry.kind, static_cast<std::uint16_t>(shm::OpKind::reduce_scatter));
  EXPECT_EQ(entry.reduction, static_cast<std::uint8_t>(Reduction::average));
  EXPECT_EQ(entry.role, static_cast<std::uint8_t>(Role::gradient));
  EXPECT_EQ(entry.count, 11u);
  EXPECT_EQ(entry.flags, shm::kEntryHasCounts);
  const std::uint64_t push_tensor = entry.tensor;
  ASSERT_TERN_OK(tern_pull(push_pull, nullptr, values, &ticket));
  entry = last_entry();
  EXPECT_EQ(entry.kind, static_cast<std::uint16_t>(shm::OpKind::all_gather));
  EXPECT_EQ(entry.role, static_cast<std::uint8_t>(Role::delta));
  EXPECT_EQ(entry.input_offset - entry.output_offset, 4 * sizeof(float));
  EXPECT_NE(entry.tensor, push_tensor);
}

TEST_F(PushPullOfThree, EqualShardsNeedNoCounts) {
  tern_push_pull* const push_pull = declare(of(12));
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_push(push_pull, values, values + 32, &ticket));
  EXPECT_EQ(last_entry().flags, 0u);
}

TEST_F(PushPullOfThree, WhatMakesNoSenseIsRefused) {
  tern_push_pull_options options = of(0);
  EXPECT_EQ(refusal(options), "count must be 1..2^40");
  options = of(11);
  options.server = 3;
  EXPECT_EQ(refusal(options), "server must be TERN_EVERY_RANK or a rank of the group");
  options.server = -2;
  EXPECT_EQ(refusal(options), "server must be TERN_EVERY_RANK or a rank of the group");
  options = of(11);
  options.reduction = TERN_MAX;
  EXPECT_EQ(refusal(options), "reduction must be TERN_SUM or TERN_AVERAGE");
  options = of(11);
  options.reserved = 1;
  EXPECT_EQ(refusal(options), "options.reserved must be 0");
  options = of(11);
  const std::string long_name(123, 'x');
  for (const char* name : {static_cast<const char*>(nullptr), "", long_name.c_str()}) {
    options.name = name;
    EXPECT_EQ(refusal(options), "name must have 1..122 bytes");
  }
  tern_push_pull* const push_pull = declare(of(11));
  std::uint64_t begin = 0, count = 0;
  for (const std::int32_t rank : {-1, 3}) {
    EXPECT_EQ(tern_push_pull_get_shard(push_pull, rank, &begin, &count), TERN_ERR_INVALID_ARGUMENT);
  }
  tern_ticket ticket = 0;
  EXPECT_EQ(tern_push(push_pull, nullptr, nullptr, &ticket), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_pull(nullptr, values, values, &ticket), TERN_ERR_INVALID_ARGUMENT);
}

// The first tensor is not left behind, and the detail is that of the failure.
TEST_F(PushPullOfThree, WhereOneTensorCannotBeDeclaredNeitherIs) {
  tern_push_pull_options options = of(11);
  const std::string long_recipe(64, 'x');
  options.pull_recipe = long_recipe.c_str();
  tern_push_pull* push_pull = nullptr;
  EXPECT_EQ(tern_push_pull_declare(group, &options, &push_pull), TERN_ERR_BAD_RECIPE);
  EXPECT_EQ(push_pull, nullptr);
  EXPECT_EQ(std::string(tern_error_detail()), "recipe must have 1..63 bytes");
  daemon.await_requests(shm::PacketKind::tensor_release, 1);
}

TEST(PushPullWrapper, AStepOfOneRank) {
  FakeDaemon daemon;
  tern_connect_options connect = TERN_CONNECT_OPTIONS_INIT;
  connect.socket_path = daemon.path().c_str();
  connect.arena_bytes = 1 << 20;
  tern::Client client(connect);
  tern::Group group = client.join(client.mint(), 0, 1);
  tern_push_pull_options options = TERN_PUSH_PULL_OPTIONS_INIT;
  options.name = "model";
  options.count = 10;
  tern::PushPull server = group.declare(options);
  const tern::PushPull::Shard shard = server.shard(0);
  EXPECT_EQ(shard.begin, 0u);
  EXPECT_EQ(shard.count, 10u);
  const std::span<float> gradient = client.allocate<float>(10);
  std::iota(gradient.begin(), gradient.end(), 1.0f);
  std::vector<float> sum(10), all(10);
  server.push<float>(gradient, sum).wait();
  EXPECT_EQ(sum[9], 10.0f);
  server.pull<float>(sum, all).wait();
  EXPECT_EQ(all[9], 10.0f);
  EXPECT_THROW((void)server.shard(1), tern::Failure);
  (void)server.push_stats();
  (void)server.pull_stats();
}

}  // namespace
}  // namespace tern::testing
