// The end of a daemon that waits for its jobs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <string>

#include "ctl/control_client.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

using ::testing::HasSubstr;

class Drained : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(cluster.running()); }
  // Once everybody whom the daemon waits for is gone.
  void expect_end() {
    const auto end = cluster[0].process().wait_exit();
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->status, 0);
  }

  Cluster cluster{1};
  int code = -1;
};

TEST_F(Drained, AnIdleDaemonEndsAtOnce) {
  EXPECT_THAT(cluster[0].ternctl({"drain"}, &code), HasSubstr("the daemon has ended"));
  EXPECT_EQ(code, 0);
  expect_end();
}

TEST_F(Drained, AJobGoesOnAndANewOneIsRefused) {
  Ranks job(cluster, {2});
  ASSERT_EQ(job.join(), "");
  EXPECT_THAT(cluster[0].ternctl({"drain", "--no-wait"}, &code),
              HasSubstr("waits for 2 clients (test: 2) and 1 group, for 599 s at most"));
  EXPECT_EQ(code, 0);
  RankProcess late(cluster[0]);
  const Reply refused = late.connect();
  EXPECT_EQ(refused.code, TERN_ERR_SHUTTING_DOWN) << refused;
  EXPECT_THAT(refused.text, HasSubstr("takes no new jobs"));
  // Operations, a group more, and another epoch of the first.
  for (const Reply& reply : job.ask_all("stream group=g ops=20 count=1000")) {
    EXPECT_TRUE(reply.ok()) << reply;
  }
  EXPECT_EQ(job.join("h"), "");
  for (const Reply& reply : job.ask_all("leave group=h")) EXPECT_TRUE(reply.ok()) << reply;
  EXPECT_EQ(job.rejoin("h"), "");
  EXPECT_TRUE(cluster[0].running());
  EXPECT_EQ(cluster[0].ask("status")["draining"], true);
  auto waits = std::async(std::launch::async, [&] { return cluster[0].ternctl({"drain"}); });
  for (const Reply& reply : job.ask_all("disconnect")) EXPECT_TRUE(reply.ok()) << reply;
  expect_end();
  EXPECT_THAT(waits.get(), HasSubstr("the daemon has ended"));
}

TEST_F(Drained, AClientThatHasNoJobYetIsRefusedItsGroup) {
  Ranks idle(cluster, {1});
  cluster[0].ternctl({"drain", "--no-wait"});
  EXPECT_THAT(idle.join(), HasSubstr("takes no new jobs"));
  EXPECT_TRUE(idle[0].ask("disconnect").ok());
  expect_end();
}

TEST_F(Drained, AtTheDeadlineWhatRunsFails) {
  Ranks job(cluster, {2});
  ASSERT_EQ(job.join(), "");
  job[0].ask("submit op=a group=g count=16");  // the other rank never comes
  EXPECT_THAT(cluster[0].ternctl({"drain", "--deadline", "0.2"}, &code),
              HasSubstr("the daemon has ended"));
  EXPECT_EQ(code, 0);
  const Reply reply = job[0].ask("wait op=a");
  EXPECT_EQ(reply.code, TERN_ERR_SHUTTING_DOWN) << reply;
  expect_end();
}

TEST_F(Drained, WhoCancelsItHasADaemonAsBefore) {
  Ranks job(cluster, {1});
  cluster[0].ternctl({"drain", "--no-wait"});
  EXPECT_THAT(cluster[0].ternctl({"drain", "--cancel"}, &code), HasSubstr("takes new jobs"));
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(job[0].ask("disconnect").ok());
  Ranks next(cluster, {1});
  EXPECT_EQ(next.join(), "");
  EXPECT_EQ(cluster[0].ask("status")["draining"], false);
}

TEST_F(Drained, WhatIsAskedNotToHappenDoesNot) {
  const auto ask = [this](const nlohmann::json& args) {
    return ctl::ask_daemon(cluster[0].control_socket(), "drain", args, std::chrono::seconds(60));
  };
  EXPECT_TRUE(ask({{"if_idle", false}}));
  EXPECT_EQ(cluster[0].ask("status")["draining"], false);
  EXPECT_FALSE(ask({{"if_idle", 1}}));
  Ranks ranks(cluster, {1});
  ASSERT_EQ(ranks.join(), "");
  EXPECT_TRUE(ask({{"seconds", 1000}, {"cancel", false}}));
  EXPECT_EQ(cluster[0].ask("status")["draining"], true);
}

TEST_F(Drained, AQuestionChangesNothing) {
  Ranks job(cluster, {1});
  EXPECT_THAT(cluster[0].ternctl({"drain", "--status"}, &code), HasSubstr("takes new jobs"));
  EXPECT_EQ(code, 0);
  cluster[0].ternctl({"drain", "--if-idle"}, &code);
  EXPECT_EQ(code, 1) << "it has a client";
  EXPECT_EQ(cluster[0].ask("status")["draining"], false);
  cluster[0].ternctl({"drain", "--no-wait", "--deadline", "1000"});
  cluster[0].ternctl({"drain", "--if-idle"}, &code);
  EXPECT_EQ(code, 1);
  EXPECT_GT(cluster[0].ask("drain")["seconds_left"].get<double>(), 600) << "of the operator";
  EXPECT_TRUE(job[0].ask("disconnect").ok());
  expect_end();
}

TEST_F(Drained, OnlyIfNobodyNeedsItEndsAtOnce) {
  cluster[0].ternctl({"drain", "--if-idle"}, &code);
  EXPECT_EQ(code, 0);
  expect_end();
}

TEST_F(Drained, ADeadlineThatIsNoneIsNamed) {
  EXPECT_THAT(cluster[0].ternctl({"drain", "--deadline", "-1"}, &code), HasSubstr("--deadline"));
  EXPECT_EQ(code, 2);
  EXPECT_EQ(cluster[0].ask("status")["draining"], false);
}

}  // namespace
}  // namespace tern::e2e
