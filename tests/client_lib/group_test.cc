#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

class Groups : public ClientTest {
 protected:
  Groups() : ClientTest({.last_common_op = 17}) {}
};

TEST_F(Groups, InfoIsWhatTheDaemonAgreed) {
  tern_group_info info = TERN_GROUP_INFO_INIT;
  ASSERT_TERN_OK(tern_group_get_info(group, &info));
  EXPECT_EQ(info.rank, 0);
  EXPECT_EQ(info.size, 1);
  EXPECT_EQ(info.node_count, 1);
  EXPECT_EQ(info.epoch, 1u);
  EXPECT_EQ(info.last_common_op, 17u);
  info.struct_size = 4;
  EXPECT_EQ(tern_group_get_info(group, &info), TERN_ERR_INVALID_ARGUMENT);
}

TEST_F(Groups, JoinChecksItsArguments) {
  tern_group_id id{};
  tern_join_options options = TERN_JOIN_OPTIONS_INIT;
  tern_group* joined = nullptr;
  EXPECT_EQ(tern_group_join(client, &id, &options, &joined), TERN_ERR_INVALID_ARGUMENT);
  std::memset(id.text, 'x', sizeof id.text);
  EXPECT_EQ(tern_group_join(client, &id, &options, &joined), TERN_ERR_INVALID_ARGUMENT);
  id.text[10] = '\0';
  EXPECT_EQ(tern_group_join(client, &id, &options, &joined), TERN_ERR_BAD_SECRET);
  EXPECT_STREQ(tern_error_detail(), "no such secret");
  options.rank = 1;
  EXPECT_EQ(tern_group_join(client, &id, &options, &joined), TERN_ERR_INVALID_ARGUMENT);
  options.rank = 0;
  options.size = 1025;
  EXPECT_EQ(tern_group_join(client, &id, &options, &joined), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_group_join(client, &id, nullptr, &joined), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(joined, nullptr);
}

TEST_F(Groups, JoinCarriesItsOptions) {
  tern_group_id id{};
  ASSERT_TERN_OK(tern_group_mint(client, &id));
  tern_join_options options = TERN_JOIN_OPTIONS_INIT;
  options.rank = 2;
  options.size = 5;
  options.verify = 1;
  options.seed = 99;
  options.op_timeout_ms = 1234;
  tern_group* joined = nullptr;
  ASSERT_TERN_OK(tern_group_join(client, &id, &options, &joined));
  const shm::GroupJoinPacket packet = daemon.last_join();
  EXPECT_EQ(packet.rank, 2);
  EXPECT_EQ(packet.size, 5);
  EXPECT_EQ(packet.verify, 1u);
  EXPECT_EQ(packet.seed, 99u);
  EXPECT_EQ(packet.timeout_ms, 60000);
  EXPECT_EQ(packet.op_timeout_ms, 1234);
}

TEST_F(Groups, ALongJoinHoldsNobodyUp) {
  daemon.hold_joins(true);
  tern_group* late = nullptr;
  tern_status joined = TERN_ERR_INTERNAL;
  std::thread joiner([&] { joined = connection.join(&late, TERN_FOREVER); });
  daemon.await_requests(shm::PacketKind::group_join, 2);
  EXPECT_NE(declare("while joining", 4), nullptr);
  EXPECT_NE(declare("and again", 4), nullptr);
  daemon.hold_joins(false);
  joiner.join();
  EXPECT_EQ(joined, TERN_OK);
  EXPECT_NE(late, nullptr);
}

TEST_F(Groups, ARejoinTellsHowManyOpsWereCompleted) {
  for (int i = 0; i < 3; ++i) ASSERT_TERN_OK(tern_wait(client, submit_any(), TERN_FOREVER));
  daemon.set_ops(Ops::fail);
  ASSERT_EQ(tern_wait(client, submit_any(), TERN_FOREVER), TERN_ERR_MISMATCH);
  daemon.set_ops(Ops::complete);
  ASSERT_TERN_OK(tern_wait(client, submit_any(), TERN_FOREVER));
  EXPECT_EQ(daemon.last_join().completed_ops, 0u);
  ASSERT_TERN_OK(tern_group_leave(group));
  ASSERT_TERN_OK(connection.join(&group));
  EXPECT_EQ(daemon.last_join().completed_ops, 3u);
  tern_group_info info = TERN_GROUP_INFO_INIT;
  ASSERT_TERN_OK(tern_group_get_info(group, &info));
  EXPECT_EQ(info.epoch, 2u);
}

TEST_F(Groups, ManyThreadsMayAskAtOnce) {
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 25; ++i) {
        const std::string name = std::to_string(t * 100 + i);
        tern_tensor* tensor = declare(name.c_str(), 4);
        ASSERT_NE(tensor, nullptr);
        ASSERT_EQ(tern_tensor_release(tensor), TERN_OK);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(daemon.request_count(shm::PacketKind::tensor_declare), 100u);
}

TEST_F(Groups, RefusalsReachTheAsker) {
  daemon.set_answers(Answers::refuse);
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  options.name = "t";
  options.count = 1;
  tern_tensor* tensor = nullptr;
  EXPECT_EQ(tern_tensor_declare(group, &options, &tensor), TERN_ERR_QUOTA_EXCEEDED);
  EXPECT_STREQ(tern_error_detail(), "only 3 widgets are allowed");
  EXPECT_EQ(tensor, nullptr);
}

TEST_F(Groups, DeclareCarriesAndChecksItsOptions) {
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  tern_tensor* tensor = nullptr;
  options.count = 10;
  EXPECT_EQ(tern_tensor_declare(group, &options, &tensor), TERN_ERR_INVALID_ARGUMENT);
  const std::string longest(127, 'n');
  const std::string too_long(128, 'n');
  options.name = too_long.c_str();
  EXPECT_EQ(tern_tensor_declare(group, &options, &tensor), TERN_ERR_INVALID_ARGUMENT);
  options.name = longest.c_str();
  options.recipe = "3lc:s=1";
  options.level = "balanced";
  options.role = TERN_GRADIENT;
  options.dtype = TERN_BF16;
  options.priority = -3;
  options.exempt = 1;
  ASSERT_TERN_OK(tern_tensor_declare(group, &options, &tensor));
  const shm::TensorDeclarePacket packet = daemon.last_declare();
  EXPECT_EQ(packet.name, longest);
  EXPECT_STREQ(packet.recipe, "3lc:s=1");
  EXPECT_STREQ(packet.level, "balanced");
  EXPECT_EQ(packet.role, 1);
  EXPECT_EQ(packet.dtype, 3);
  EXPECT_EQ(packet.priority, -3);
  EXPECT_EQ(packet.exempt, 1);

  options.count = 0;
  EXPECT_EQ(tern_tensor_declare(group, &options, &tensor), TERN_ERR_INVALID_ARGUMENT);
  options.count = std::uint64_t{1} << 63;
  EXPECT_EQ(tern_tensor_declare(group, &options, &tensor), TERN_ERR_INVALID_ARGUMENT);
  options.count = 1;
  options.recipe = too_long.c_str();
  EXPECT_EQ(tern_tensor_declare(group, &options, &tensor), TERN_ERR_BAD_RECIPE);
}

TEST_F(Groups, TensorsWithoutALevelHaveTheGroups) {
  ASSERT_TERN_OK(tern_group_set_level(group, "loss<=0.01"));
  declare("t", 4);
  EXPECT_STREQ(daemon.last_declare().level, "loss<=0.01");
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  tern_tensor* tensor = nullptr;
  options.name = "own";
  options.count = 4;
  options.level = "aggressive";
  ASSERT_TERN_OK(tern_tensor_declare(group, &options, &tensor));
  EXPECT_STREQ(daemon.last_declare().level, "aggressive");
  ASSERT_TERN_OK(tern_group_set_level(group, nullptr));
  declare("u", 4);
  EXPECT_STREQ(daemon.last_declare().level, "");
}

TEST_F(Groups, ALevelOfAGroupIsChecked) {
  EXPECT_EQ(tern_group_set_level(nullptr, "lossless"), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_group_set_level(group, ""), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_group_set_level(group, "as little as it may"), TERN_ERR_INVALID_ARGUMENT);
}

TEST_F(Groups, StatsAreConverted) {
  tern_tensor* tensor = declare("t", 4);
  tern_tensor_stats stats = TERN_TENSOR_STATS_INIT;
  ASSERT_TERN_OK(tern_tensor_get_stats(tensor, &stats));
  EXPECT_EQ(stats.ops, 3u);
  EXPECT_EQ(stats.ratio, 4.0);
  EXPECT_STREQ(stats.recipe, "none(raw)");
}

TEST_F(Groups, AReleaseWaitsForTheOpsInFlight) {
  daemon.set_ops(Ops::hold);
  tern_tensor* tensor = declare("t", 16);
  float* values = connection.allocate<float>(16);
  tern_op op = f32_op(values, values, 0);
  op.tensor = tensor;
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_all_reduce(group, &op, &ticket));
  ASSERT_TERN_OK(tern_tensor_release(tensor));
  daemon.await_entries(1);
  EXPECT_EQ(daemon.request_count(shm::PacketKind::tensor_release), 0u);
  daemon.complete_held();
  ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
  daemon.await_requests(shm::PacketKind::tensor_release, 1);
}

TEST_F(Groups, ALateJoinIsUndone) {
  daemon.hold_joins(true);
  Connection other(daemon.path(), 20);
  ASSERT_TERN_OK(other.status);
  tern_group* late = nullptr;
  EXPECT_EQ(other.join(&late, 1), TERN_ERR_TIMEOUT);
  daemon.hold_joins(false);
  // Answers are read when somebody asks.
  tern_group_id id{};
  while (daemon.request_count(shm::PacketKind::group_leave) == 0) {
    (void)tern_group_mint(other.client, &id);
  }
}

}  // namespace
}  // namespace tern::testing
