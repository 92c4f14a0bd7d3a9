// Who dies, in the middle of a stream of operations: every survivor hears of it in bounded time,
// keeps nothing of the dead, and works again with the same programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

using ::testing::HasSubstr;

// A party was lost; which code it is depends on who tells first.
bool tells_of_loss(const Reply& reply) {
  return reply.code == TERN_ERR_RANK_LOST || reply.code == TERN_ERR_PEER_LOST ||
         reply.code == TERN_ERR_DAEMON_LOST;
}

class Failure : public ::testing::TestWithParam<int> {
 protected:
  Failure() : cluster(3, {"--lanes", std::to_string(GetParam())}) {}

  void SetUp() override {
    ASSERT_TRUE(cluster.running());
    for (std::size_t node = 0; node < 3; ++node) before.push_back(cluster[node].holdings());
    ranks = Ranks(cluster, {2, 1, 2});
    ASSERT_EQ(ranks.join("g", "", 4), "");
  }

  // All ranks work until somebody dies.
  void start_stream() {
    const std::int64_t done = cluster[0].counter("ops_completed");
    ranks.tell_all("stream group=g ops=0 tensors=3 window=12 large=150000");
    ASSERT_TRUE(eventually([&] { return cluster[0].counter("ops_completed") > done + 60; }));
  }

  // The survivors' answers; nothing of them is a hang or a wrong result.
  void expect_loss(const std::vector<std::size_t>& survivors, const std::string& who = "") {
    for (const std::size_t rank : survivors) {
      const Reply reply = ranks[rank].reply();
      EXPECT_TRUE(tells_of_loss(reply)) << "rank " << rank << ": " << reply;
      if (reply.code != TERN_ERR_DAEMON_LOST) {
        EXPECT_THAT(reply.text, HasSubstr(who)) << "rank " << rank;
      }
    }
  }

  // Survivors leave, everybody joins again under the same id, and it works.
  void expect_recovery(const std::vector<std::size_t>& survivors) {
    for (const std::size_t rank : survivors) {
      const Reply left = ranks[rank].ask("leave group=g");
      EXPECT_TRUE(left.ok()) << "rank " << rank << ": " << left;
    }
    ASSERT_EQ(ranks.rejoin(), "");
    EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=60 tensors=3")), "");
  }

  // With all clients gone the daemon holds what it held before the first one came: at most the
  // connections to its peers are more.
  void expect_nothing_left(std::size_t node) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank].process().kill();
    const std::size_t links = 2 * (static_cast<std::size_t>(GetParam()) + 1);
    EXPECT_TRUE(eventually([&] {
      const Holdings now = cluster[node].holdings();
      return now.segments == before[node].segments &&
             now.descriptors <= before[node].descriptors + links &&
             cluster[node].ask("clients").empty() && cluster[node].ask("groups").empty();
    })) << "node "
        << node << " had " << before[node].descriptors << " descriptors, has "
        << cluster[node].holdings().descriptors << " and " << cluster[node].holdings().segments
        << " segments; clients " << cluster[node].ask("clients").dump() << " groups "
        << cluster[node].ask("groups").dump();
  }

  Cluster cluster;
  Ranks ranks;
  std::vector<Holdings> before;
};

TEST_P(Failure, OfARank) {
  for (const std::size_t dead : {std::size_t{1}, std::size_t{2}}) {
    start_stream();
    ranks[dead].process().kill();
    std::vector<std::size_t> survivors;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank != dead) survivors.push_back(rank);
    }
    expect_loss(survivors, "lost rank " + std::to_string(dead));
    ranks.replace(dead, cluster, dead == 1 ? 0 : 1);
    expect_recovery(survivors);
  }
  for (std::size_t node = 0; node < 3; ++node) expect_nothing_left(node);
}

TEST_P(Failure, OfADaemon) {
  start_stream();
  cluster[0].process().kill();
  const auto begin = std::chrono::steady_clock::now();
  for (const std::size_t rank : {0u, 1u}) {
    const Reply reply = ranks[rank].reply();
    EXPECT_EQ(reply.code, TERN_ERR_DAEMON_LOST) << reply;
  }
  expect_loss({2, 3, 4}, cluster[0].address());
  const auto waited = std::chrono::steady_clock::now() - begin;
  RecordProperty(
      "milliseconds",
      std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()));
  ASSERT_TRUE(cluster[0].restart());
  before[0] = cluster[0].holdings();
  for (const std::size_t rank : {0u, 1u}) {
    ranks[rank].ask("disconnect");
    ASSERT_TRUE(ranks[rank].connect().ok());
  }
  expect_recovery({2, 3, 4});
  for (std::size_t node = 0; node < 3; ++node) expect_nothing_left(node);
}

TEST_P(Failure, OfTheCoordinatorsNode) {
  start_stream();
  cluster[2].process().kill();
  for (const std::size_t rank : {3u, 4u}) ranks[rank].process().kill();
  expect_loss({0, 1, 2}, cluster[2].address());
  ASSERT_TRUE(cluster[2].restart());
  before[2] = cluster[2].holdings();
  for (const std::size_t rank : {3u, 4u}) ranks.replace(rank, cluster, 2);
  // The id names the daemon that was lost, but its restarted successor learns it from its own
  // ranks.
  expect_recovery({0, 1, 2});
  for (std::size_t node = 0; node < 3; ++node) expect_nothing_left(node);
}

TEST_P(Failure, OfADaemonThatStandsStill) {
  start_stream();
  cluster[1].process().signal(SIGSTOP);
  expect_loss({0, 1, 3, 4}, cluster[1].address());
  cluster[1].process().signal(SIGCONT);
  // It finds that the others have given it up.
  expect_loss({2});
  expect_recovery({0, 1, 2, 3, 4});
  for (std::size_t node = 0; node < 3; ++node) expect_nothing_left(node);
}

TEST_P(Failure, OfARankWhoseForkedChildKeepsTheSocket) {
  const std::string child = ranks[2].ask("fork").field("child");
  ASSERT_FALSE(child.empty());
  start_stream();
  ::kill(ranks[2].process().pid(), SIGKILL);
  expect_loss({0, 1, 3, 4}, "lost rank 2");
  EXPECT_EQ(::kill(std::stoi(child), 0), 0) << "the child should still be there";
  EXPECT_TRUE(eventually([&] { return cluster[1].ask("clients").empty(); }));
  ranks.replace(2, cluster, 1);
  expect_recovery({0, 1, 3, 4});
  EXPECT_TRUE(eventually([&] { return ::kill(std::stoi(child), 0) != 0; }));
}

// A rank that stands still is no failure until the op timeout, which names it.
TEST_P(Failure, OfARankThatStandsStill) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank].ask("leave group=g");
  ASSERT_EQ(ranks.join("g", "op_timeout=1500"), "");
  start_stream();
  ranks[2].process().signal(SIGSTOP);
  for (const std::size_t rank : {0u, 1u, 3u, 4u}) {
    const Reply reply = ranks[rank].reply();
    EXPECT_EQ(reply.code, TERN_ERR_OP_TIMEOUT) << reply;
    EXPECT_THAT(reply.text, HasSubstr("rank 2"));
  }
  ranks[2].process().signal(SIGCONT);
  EXPECT_FALSE(ranks[2].reply().ok());
  expect_recovery({0, 1, 2, 3, 4});
}

TEST_P(Failure, OfNobodyWhenARankLeaves) {
  ASSERT_TRUE(ranks[0].ask("submit op=x group=g count=100000").ok());
  ASSERT_TRUE(ranks[1].ask("leave group=g").ok());
  const Reply ended = ranks[0].ask("wait op=x");
  EXPECT_EQ(ended.code, TERN_ERR_GROUP_LEFT) << ended;
  EXPECT_THAT(ended.text, HasSubstr("rank 1"));
  for (const std::size_t rank : {0u, 2u, 3u, 4u}) ranks[rank].ask("leave group=g");
  ASSERT_EQ(ranks.rejoin(), "");
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=60")), "");
}

INSTANTIATE_TEST_SUITE_P(Lanes, Failure, ::testing::Values(1, 3),
                         [](const auto& one) { return std::to_string(one.param); });

}  // namespace
}  // namespace tern::e2e
