#include "ctl/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tern::ctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

const json kStatus{{"uptime_s", 7500}, {"lanes", 2}, {"clients", 3},
                   {"groups", 1},      {"peers", 4}, {"silent_lanes", json::array()}};
constexpr double kPatience = 60;

json waiting_group(double seconds) {
  return json{
      {{"uid", "1f2e3d4c"},
       {"state", "running"},
       {"waiting",
        {{{"op", "all_reduce"}, {"tensor", "layer1"}, {"ranks", {3, 7}}, {"seconds", seconds}}}}}};
}

TEST(Health, IsOneLineOfNumbersWhenAllIsWell) {
  const json peers{{{"lane", "0"}, {"state", "up"}}, {{"lane", "1"}, {"state", "connecting"}}};
  const Health health = judge_health(kStatus, peers, waiting_group(59), kPatience);
  EXPECT_TRUE(health.well);
  EXPECT_EQ(health.line, "OK: up 2 h 5 min, 2 lanes, 3 clients, 1 groups, 4 peers");
}

TEST(Health, WhoIsNotShownLinksIsToldSo) {
  const Health health = judge_health(kStatus, json(), waiting_group(59), kPatience);
  EXPECT_TRUE(health.well);
  EXPECT_THAT(health.line, HasSubstr("4 peers of this user; links are for observers"));
  EXPECT_FALSE(judge_health(kStatus, json(), waiting_group(61), kPatience).well);
}

TEST(Health, NamesSilentLanesBrokenLinksAndFailedOrLateGroups) {
  json status = kStatus;
  status["silent_lanes"] = {1};
  const json peers{{{"lane", "0"}, {"address", "10.0.0.2:7700"}, {"state", "resuming"}}};
  json groups = waiting_group(61);
  groups.push_back({{"uid", "aabbccdd"}, {"state", "failed"}, {"error", "rank_lost: rank 2"}});
  const Health health = judge_health(status, peers, groups, kPatience);
  EXPECT_FALSE(health.well);
  EXPECT_EQ(
      health.line,
      "FAULT: lane 1 does not answer; the link of lane 0 to 10.0.0.2:7700 is resuming; group "
      "1f2e3d4c: all_reduce of layer1 waits for ranks 3,7 for 1 min 1 s; group aabbccdd failed: "
      "rank_lost: rank 2");
}

TEST(Health, NamesWhomASendWaitsFor) {
  json groups = waiting_group(1);
  groups[0]["waiting"] = {
      {{"op", "send"}, {"tensor", "tag 7"}, {"ranks", {3}}, {"seconds", 61}, {"tag", 7}},
      {{"op", "recv"}, {"tensor", "tag 8"}, {"ranks", json::array()}, {"seconds", 61}, {"tag", 8}}};
  const Health health = judge_health(kStatus, json::array(), groups, kPatience);
  EXPECT_EQ(health.line,
            "FAULT: group 1f2e3d4c: send of tag 7 waits for rank 3 for 1 min 1 s; group 1f2e3d4c: "
            "recv of tag 8 waits for any rank for 1 min 1 s");
}

TEST(Health, IsBoundedHoweverManyFaultsThereAre) {
  json status = kStatus;
  for (int lane = 0; lane < 16; ++lane) status["silent_lanes"].push_back(lane);
  const Health health = judge_health(status, json::array(), json::array(), kPatience);
  EXPECT_THAT(health.line, HasSubstr("lane 4 does not answer; and 11 more"));
  EXPECT_THAT(health.line, Not(HasSubstr("lane 5")));
}

TEST(Health, IsNotConfusedByAnotherVersionsAnswers) {
  for (const char* text : {"null", "[]", "7", R"({"silent_lanes":7})"}) {
    const json odd = json::parse(text);
    EXPECT_TRUE(judge_health(odd, odd, odd, kPatience).well) << text;
  }
  const json odd = json::parse(R"([null,{"waiting":[7,{"seconds":"x"}]}])");
  EXPECT_TRUE(judge_health(kStatus, odd, odd, kPatience).well);
}

}  // namespace
}  // namespace tern::ctl
