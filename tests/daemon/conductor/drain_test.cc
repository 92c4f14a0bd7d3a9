#include "daemon/conductor/drain.h"

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class DrainTest : public PartRig {
 protected:
  Drain drain_{clock_, {clients_, joins_, groups_}};
};

TEST_F(DrainTest, IsOffUntilItBegins) {
  EXPECT_FALSE(drain_.is_on());
  EXPECT_FALSE(drain_.is_over());
  EXPECT_EQ(drain_.refusal(), "");
  EXPECT_EQ(drain_.report(), (nlohmann::json{{"draining", false}}));
}

TEST_F(DrainTest, OfAnIdleDaemonIsOverAtOnce) {
  connect(1, kAlice);  // one that has not said hello has no job
  drain_.begin(10 * kSecond);
  EXPECT_TRUE(drain_.is_over());
}

TEST_F(DrainTest, WaitsForClientsAndSaysForWhich) {
  greet(connect(1, kAlice));
  drain_.begin(10 * kSecond);
  EXPECT_FALSE(drain_.is_over());
  clock_.advance_ns(4 * kSecond);
  EXPECT_EQ(drain_.text(), "waits for 1 client (job: 1) and 0 groups, for 6 s at most");
  const nlohmann::json report = drain_.report();
  EXPECT_EQ(report["draining"], true);
  EXPECT_EQ(report["seconds_left"], 6.0);
  ASSERT_EQ(report["waits_for"].size(), 1u);
  EXPECT_EQ(report["waits_for"][0]["uid"], kAlice);
  EXPECT_EQ(report["waits_for"][0]["job"], "job");
}

TEST_F(DrainTest, IsOverAtItsDeadlineWhoeverIsThere) {
  greet(connect(1, kAlice));
  drain_.begin(10 * kSecond);
  clock_.advance_ns(10 * kSecond - 1);
  EXPECT_FALSE(drain_.is_over());
  EXPECT_EQ(drain_.next_deadline_ns(), clock_.now_ns() + 1);
  clock_.advance_ns(1);
  EXPECT_TRUE(drain_.is_over());
}

TEST_F(DrainTest, RefusesNewJobsAndLetsOthersJoinAgain) {
  Client& runs = greet(connect(1, kAlice));
  runs.has_joined = true;
  const Client& fresh = greet(connect(2, kBob));
  drain_.begin(10 * kSecond);
  EXPECT_NE(drain_.refusal(), "");
  EXPECT_EQ(drain_.join_refusal(runs), "");
  EXPECT_EQ(drain_.join_refusal(fresh), drain_.refusal());
}

TEST_F(DrainTest, ADaemonThatEndsTakesNothingNewOfAnybody) {
  Client& runs = greet(connect(1, kAlice));
  runs.has_joined = true;
  drain_.stop();
  EXPECT_EQ(drain_.refusal(), "the daemon is stopping");
  EXPECT_EQ(drain_.join_refusal(runs), "the daemon is stopping");
}

TEST_F(DrainTest, ThatIsCancelledRefusesNobody) {
  greet(connect(1, kAlice));
  drain_.begin(kSecond);
  drain_.cancel();
  clock_.advance_ns(2 * kSecond);
  EXPECT_FALSE(drain_.is_over());
  EXPECT_EQ(drain_.refusal(), "");
}

}  // namespace
}  // namespace tern::daemon::conductor_test
