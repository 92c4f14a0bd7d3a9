#include <gtest/gtest.h>

#include <string>

#include "client_lib/include/tern/tern.hpp"
#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace split_test {
namespace {

class Splits : public ClientTest {};

TEST_F(Splits, AChildIsAGroup) {
  tern_group* child = nullptr;
  tern_split_options options = TERN_SPLIT_OPTIONS_INIT;
  options.seed = 5;
  options.timeout_ms = 77;
  ASSERT_TERN_OK(tern_group_split(group, 3, -4, &options, &child));
  EXPECT_EQ(daemon.last_split().color, 3);
  EXPECT_EQ(daemon.last_split().key, -4);
  EXPECT_EQ(daemon.last_split().seed, 5u);
  EXPECT_EQ(daemon.last_split().timeout_ms, 77);
  tern_group_info info = TERN_GROUP_INFO_INIT;
  ASSERT_TERN_OK(tern_group_get_info(child, &info));
  EXPECT_EQ(info.rank, 0);
  EXPECT_EQ(info.size, 1);
  EXPECT_EQ(info.number, 2u) << "the daemon's, after that of the parent";
  float values[4] = {1, 2, 3, 4};
  tern_op op = f32_op(values, nullptr, 4);
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_all_reduce(child, &op, &ticket));
  ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
  EXPECT_EQ(daemon.seen().at(0).entry.group, 2u);
  ASSERT_TERN_OK(tern_group_leave(child));
  EXPECT_NE(submit_any(), 0u) << "the parent goes on";
}

TEST_F(Splits, ANegativeColourHasNoChild) {
  tern_group* child = group;
  ASSERT_TERN_OK(tern_group_split(group, -1, 0, nullptr, &child));
  EXPECT_EQ(child, nullptr);
  EXPECT_EQ(daemon.last_split().timeout_ms, 60'000);
}

TEST_F(Splits, WhatHasNoMeaningIsRefused) {
  tern_group* child = nullptr;
  EXPECT_EQ(tern_group_split(nullptr, 0, 0, nullptr, &child), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_group_split(group, 0, 0, nullptr, nullptr), TERN_ERR_INVALID_ARGUMENT);
  const auto refused = [&](auto change) {
    tern_split_options options = TERN_SPLIT_OPTIONS_INIT;
    change(options);
    EXPECT_EQ(tern_group_split(group, 0, 0, &options, &child), TERN_ERR_INVALID_ARGUMENT);
  };
  refused([](tern_split_options& options) { options.struct_size = 8; });
  refused([](tern_split_options& options) { options.verify = 2; });
  refused([](tern_split_options& options) { options.timeout_ms = -2; });
  refused([](tern_split_options& options) { options.op_timeout_ms = -1; });
  EXPECT_EQ(daemon.request_count(shm::PacketKind::group_split), 0u);
}

TEST(OlderDaemons, CannotSplit) {
  FakeDaemon daemon;
  daemon.set_welcome_change(
      [](shm::WelcomePacket& welcome, shm::SegmentHeader&) { welcome.features = 0; });
  Connection connection(daemon.path());
  tern_group* group = nullptr;
  ASSERT_TERN_OK(connection.join(&group));
  tern_group* child = nullptr;
  EXPECT_EQ(tern_group_split(group, 0, 0, nullptr, &child), TERN_ERR_UNSUPPORTED);
  EXPECT_EQ(daemon.request_count(shm::PacketKind::group_split), 0u);
}

TEST_F(Splits, NonsenseEndsTheConnection) {
  daemon.set_answers(Answers::wrong_kind);
  tern_group* child = nullptr;
  EXPECT_EQ(tern_group_split(group, 0, 0, nullptr, &child), TERN_ERR_PROTOCOL_ERROR);
  EXPECT_EQ(child, nullptr);
}

TEST_F(Splits, ARefusalHasItsReason) {
  daemon.set_answers(Answers::refuse);
  tern_group* child = nullptr;
  EXPECT_NE(tern_group_split(group, 0, 0, nullptr, &child), TERN_OK);
  EXPECT_STRNE(tern_error_detail(), "");
}

TEST_F(Splits, CppChildrenAreOptional) {
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  const std::string path = daemon.path();
  options.socket_path = path.c_str();
  tern::Client own(options);
  tern::Group parent = own.join(own.mint(), 0, 1);
  EXPECT_FALSE(parent.split(-1));
  std::optional<tern::Group> child = parent.split(0);
  ASSERT_TRUE(child);
  EXPECT_EQ(child->info().size, 1);
}

}  // namespace
}  // namespace split_test
}  // namespace tern::testing
