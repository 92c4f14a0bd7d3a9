// Two users on the same daemons, one with many groups of many jobs and one with a single group:
// each gets his share of the lanes.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/rank_process.h"

namespace tern::e2e::fair_share_test {
namespace {

constexpr uid_t kAlice = 1'000'000'001, kBob = 1'000'000'002;
constexpr std::size_t kGroupsOfAlice = 6;
constexpr std::size_t kOps = 16;  // of each group, all submitted before the first begins
// What takes most of a lane's time: its codec.
constexpr const char* kTensor =
    "declare group=g name=t role=gradient recipe=ef(int:bits=8+gzip) count=524288";

class FairShare : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
    cluster = std::make_unique<Cluster>(
        2, std::vector<std::string>{"--peer-timeout", "60s", "--resume-timeout", "60s",
                                    "--op-timeout", "5min"});
    ASSERT_TRUE(cluster->running());
    cluster->open_to_all();
    for (std::size_t i = 0; i < kGroupsOfAlice; ++i) {
      alice.emplace_back(*cluster, std::vector<int>{1, 1}, "job" + std::to_string(i), kAlice);
      ASSERT_NO_FATAL_FAILURE(join(alice.back()));
    }
    bob = Ranks(*cluster, {1, 1}, "job", kBob);
    ASSERT_NO_FATAL_FAILURE(join(bob));
  }
  void join(Ranks& ranks) {
    ASSERT_EQ(ranks.join(), "");
    for (const Reply& reply : ranks.ask_all(kTensor)) ASSERT_TRUE(reply.ok()) << reply;
  }
  // Nothing ends while one of the two nodes does nothing.
  void stop() { ASSERT_EQ(::kill((*cluster)[1].pid(), SIGSTOP), 0); }
  void go_on() { ASSERT_EQ(::kill((*cluster)[1].pid(), SIGCONT), 0); }

  static std::string submission_of(std::size_t op) {
    const std::string number = std::to_string(op);
    return "submit group=g tensor=t place=in data=real draw=" + number + " op=" + number;
  }
  static void submit_all(Ranks& ranks) {
    for (std::size_t op = 0; op < kOps; ++op) {
      for (const Reply& reply : ranks.ask_all(submission_of(op))) ASSERT_TRUE(reply.ok()) << reply;
    }
  }
  static Reply wait(RankProcess& rank, std::size_t op, const std::string& ms = "60000") {
    return rank.ask("wait tolerance=1e30 ms=" + ms + " op=" + std::to_string(op));
  }
  // How many of the first ops of the group have ended well on the first node.
  static std::size_t ended(Ranks& ranks, std::size_t ops = kOps) {
    std::size_t ended = 0;
    for (std::size_t op = 0; op < ops; ++op) {
      const Reply reply = wait(ranks[0], op, "0");
      EXPECT_TRUE(reply.ok() || reply.code == TERN_ERR_TIMEOUT) << reply;
      ended += reply.ok() ? 1 : 0;
    }
    return ended;
  }

  std::unique_ptr<Cluster> cluster;
  std::vector<Ranks> alice;
  Ranks bob;
};

TEST_F(FairShare, AUserWithManyGroupsHasNoMoreOfTheLanesThanOneWithASingleGroup) {
  ASSERT_NO_FATAL_FAILURE(stop());
  for (Ranks& ranks : alice) ASSERT_NO_FATAL_FAILURE(submit_all(ranks));
  ASSERT_NO_FATAL_FAILURE(submit_all(bob));
  ASSERT_NO_FATAL_FAILURE(go_on());
  const Reply last = wait(bob[0], kOps - 1);
  ASSERT_TRUE(last.ok()) << last;
  ASSERT_NO_FATAL_FAILURE(stop());
  const std::size_t of_bob = 1 + ended(bob, kOps - 1);
  std::size_t of_alice = 0;
  for (Ranks& ranks : alice) of_alice += ended(ranks);
  std::cout << "while Bob's group ended " << of_bob << " ops, Alice's " << kGroupsOfAlice
            << " groups ended " << of_alice << "\n";
  // Group by group hers have nearly four times as many as his. Turn by turn they have twice as many,
  // and somewhat more on a busy machine: a group alone waits at times for the other node, and leaves
  // its turns to others.
  EXPECT_LE(of_alice, 3 * of_bob);
  EXPECT_GE(8 * of_alice, of_bob) << "she has a share too, of which some is in ops under way";
  ASSERT_NO_FATAL_FAILURE(go_on());
  for (Ranks& ranks : alice) {
    for (std::size_t op = 0; op < kOps; ++op) {
      const Reply reply = wait(ranks[1], op);
      EXPECT_TRUE(reply.ok()) << reply;
    }
  }
}

}  // namespace
}  // namespace tern::e2e::fair_share_test
