#include "client_lib/questions.h"

#include <gtest/gtest.h>

#include "tests/client_lib/fake_daemon.h"

namespace tern::client_lib {
namespace {

using testing::Answers;
using testing::FakeDaemon;

class QuestionsTest : public ::testing::Test {
 protected:
  QuestionsTest() : questions(*shm::PacketSocket::connect(daemon.path(), kTimeoutMs), kTimeoutMs) {
    std::vector<Fd> fds;
    ConnectOptions options;
    options.job = "job";
    options.arena_bytes = 4096;
    const auto welcome = questions.hello(options, Deadline::after_ms(kTimeoutMs), fds);
    EXPECT_TRUE(welcome.has_value());
    EXPECT_EQ(fds.size(), 4u) << "the segment, the pollable end, an eventfd for each lane";
  }

  static constexpr std::int64_t kTimeoutMs = 10'000;
  FakeDaemon daemon;
  Questions questions;
};

TEST_F(QuestionsTest, AJoinSaysWhatIsAskedAndBringsTheGroup) {
  JoinOptions options;
  options.size = 1;
  options.seed = 99;
  const auto joined = questions.join(questions.mint()->id, options, 17, 2);
  ASSERT_TRUE(joined.has_value()) << joined.error().text;
  EXPECT_EQ(joined->node_count, 1);
  EXPECT_EQ(daemon.last_join().seed, 99u);
  EXPECT_EQ(daemon.last_join().completed_ops, 17u);
}

TEST_F(QuestionsTest, AGroupOfMoreLanesThanThereAreClosesTheConnection) {
  JoinOptions options;
  options.size = 1;
  const auto joined = questions.join(questions.mint()->id, options, 0, 1);
  ASSERT_FALSE(joined.has_value());
  EXPECT_EQ(joined.error().code, Errc::protocol_error);
  EXPECT_TRUE(questions.lost());
}

TEST_F(QuestionsTest, ADeclarationNamesItsGroup) {
  const auto group = std::make_shared<GroupState>();
  group->number = 5;
  DeclareOptions options;
  options.name = "weights";
  options.count = 12;
  const auto declared = questions.declare(group, options, 0);
  ASSERT_TRUE(declared.has_value()) << declared.error().text;
  EXPECT_NE((*declared)->id, 0u);
  EXPECT_EQ((*declared)->group, group);
  EXPECT_EQ(daemon.last_declare().group, 5u);
  EXPECT_STREQ(daemon.last_declare().name, "weights");
}

TEST_F(QuestionsTest, AReleaseMayBePostedWithoutWaiting) {
  TensorState tensor;
  tensor.group = std::make_shared<GroupState>();
  questions.post_release(tensor);
  daemon.await_requests(shm::PacketKind::tensor_release, 1);
  EXPECT_FALSE(questions.lost());
}

TEST_F(QuestionsTest, WhatTheDaemonRefusesIsSaidInItsWords) {
  daemon.set_answers(Answers::refuse);
  const auto minted = questions.mint();
  ASSERT_FALSE(minted.has_value());
  EXPECT_FALSE(minted.error().text.empty());
  EXPECT_FALSE(questions.lost());
}

}  // namespace
}  // namespace tern::client_lib
