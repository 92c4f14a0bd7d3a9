#include "ctl/top.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tern::ctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct TensorRow {
  const char* group;
  const char* name;
  int ops;
  double raw;
  double sent;
  double encode_ms;
  double wire_ms;
};

json tensor(const TensorRow& row) {
  const auto& [group, name, ops, raw, sent, encode_ms, wire_ms] = row;
  return {{"group", group},           {"name", name},          {"ops", ops},
          {"bytes_raw", raw},         {"bytes_sent", sent},    {"encode_ms", encode_ms},
          {"wire_ms", wire_ms},       {"residual_ratio", 0.5}, {"recipe", "ef(3lc:s=1)"},
          {"operation", "all_gather"}};
}

json lane_counter(int first, int second) { return {{"lanes", {first, second}}}; }

// Two seconds between the samples.
TopSample before() {
  TopSample sample;
  sample.at_s = 10;
  sample.groups = {{{"uid", "aa"}, {"job", "resnet"}, {"ops_completed", 100}},
                   {{"uid", "bb"}, {"job", "bert"}, {"ops_completed", 50}}};
  sample.tensors = {tensor({"aa", "w", 100, 4e6, 1e6, 10, 30}),
                    tensor({"bb", "w", 50, 2e6, 2e6, 0, 8})};
  sample.peers = {{{"node_id", "n"}, {"lane", "0"}, {"bytes_sent", 1000}, {"frames_sent", 10}}};
  sample.counters = {{"lane_busy_ns", lane_counter(0, 0)}, {"blocks", lane_counter(5, 5)}};
  return sample;
}

TopSample now() {
  TopSample sample;
  sample.at_s = 12;
  sample.status = {{"lanes", 2}, {"version", "0.1.0"}};
  sample.clients = {{{"job", "resnet"}}, {{"job", "resnet"}}, {{"job", "bert"}}};
  sample.groups = {{{"uid", "aa"},
                    {"job", "resnet"},
                    {"ops_completed", 120},
                    {"ops_in_flight", 3},
                    {"waiting", json::array({{{"ranks", {1}}}})}},
                   {{"uid", "bb"}, {"job", "bert"}, {"ops_completed", 150}, {"ops_in_flight", 0}}};
  sample.tensors = {tensor({"aa", "w", 120, 12e6, 3e6, 40, 40}),
                    tensor({"bb", "w", 150, 22e6, 22e6, 0, 18})};
  sample.peers = {{{"node_id", "n"},
                   {"address", "10.0.0.2:7700"},
                   {"lane", "0"},
                   {"bytes_sent", 5000},
                   {"frames_sent", 30},
                   {"round_trip_us", 85.0},
                   {"unacked_frames", 4}}};
  sample.counters = {{"lane_busy_ns", lane_counter(500'000'000, 2'000'000'000)},
                     {"blocks", lane_counter(25, 5)},
                     {"lane_turns_100us", lane_counter(99, 97)},
                     {"lane_turns_5ms", lane_counter(1, 2)},
                     {"lane_turns_longer", lane_counter(0, 1)},
                     {"lane_longest_turn_ns",
                      {{"lanes", {2'500'000, 3'000'000'000}}, {"steps", {"links", "chunks"}}}},
                     {"lane_unacked_blocks", lane_counter(0, 7)}};
  return sample;
}

json rows_of(const char* view_name, const char* sort = "", bool reversed = false) {
  const TopView& view = *find_top_view(view_name);
  const auto column = column_of(view, *sort == '\0' ? view.sort : sort);
  EXPECT_TRUE(column.has_value());
  return top_json(view, {before(), now()},
                  top_rows(view, {before(), now()}, {*column, reversed}))["rows"];
}

TEST(Top, TensorsHaveRatesRatiosAndASplitOfTime) {
  const json rows = rows_of("tensors");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["group"], "bb");  // sends most
  EXPECT_EQ(rows[0]["sent_s"], 10e6);
  EXPECT_EQ(rows[0]["ratio"], 1.0);
  EXPECT_EQ(rows[1]["ops_s"], 10.0);
  EXPECT_EQ(rows[1]["raw_s"], 4e6);
  EXPECT_EQ(rows[1]["ratio"], 4.0);
  EXPECT_EQ(rows[1]["encode"], 0.75);  // 30 of 40 ms
  EXPECT_EQ(rows[1]["wire"], 0.25);
  EXPECT_EQ(rows[1]["recipe"], "ef(3lc:s=1)");
  EXPECT_EQ(rows[1]["operation"], "all_gather");
}

TEST(Top, JobsGatherTheirGroupsClientsAndTensors) {
  const json rows = rows_of("jobs", "job");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["job"], "resnet");
  EXPECT_EQ(rows[1]["clients"], 2.0);
  EXPECT_EQ(rows[1]["in_flight"], 3.0);
  EXPECT_EQ(rows[1]["waiting"], 1.0);
  EXPECT_EQ(rows[1]["ops_s"], 10.0);
  EXPECT_EQ(rows[1]["sent_s"], 1e6);
  EXPECT_EQ(rows[0]["ops_s"], 50.0);
}

TEST(Top, WhatAUserIsNotShownIsSaidSoAndTheRestIsThere) {
  TopSample own = now();
  own.peers = own.counters = json();
  for (const char* name : {"peers", "lanes"}) {
    const TopView& view = *find_top_view(name);
    EXPECT_EQ(hidden_note(view, now()), "") << name;
    const std::string note = hidden_note(view, own);
    EXPECT_THAT(note, HasSubstr(std::string(name) + " are shown to observers alone"));
    const TopRows rows = top_rows(view, {own, own}, {0});
    EXPECT_THAT(render_top(view, {own, own}, rows, 0), HasSubstr(note));
  }
  EXPECT_EQ(hidden_note(*find_top_view("jobs"), own), "");
  EXPECT_EQ(hidden_note(*find_top_view("tensors"), own), "");
}

TEST(Top, PeersAndLanesShowQueues) {
  const json peers = rows_of("peers");
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0]["sent_s"], 2000.0);
  EXPECT_EQ(peers[0]["frames_s"], 10.0);
  EXPECT_EQ(peers[0]["unacked"], 4.0);
  const json lanes = rows_of("lanes");
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[0]["busy"], 0.25);
  EXPECT_EQ(lanes[0]["blocks_s"], 10.0);
  EXPECT_EQ(lanes[1]["busy"], 1.0);
  EXPECT_EQ(lanes[1]["unacked"], 7.0);
}

TEST(Top, LanesShowHowLongTheirTurnsTake) {
  const json lanes = rows_of("lanes");
  EXPECT_EQ(lanes[0]["turn_p99_s"], 100'000 * 1e-9);
  EXPECT_EQ(lanes[1]["turn_p99_s"], 5'000'000 * 1e-9);
  EXPECT_EQ(lanes[0]["longest_turn_s"], 2'500'000 * 1e-9);
  EXPECT_EQ(lanes[0]["longest_step"], "links");
  EXPECT_EQ(lanes[1]["longest_step"], "chunks");
  // An older daemon.
  const TopView& view = *find_top_view("lanes");
  const TopRows rows = top_rows(view, {before(), before()}, {0});
  EXPECT_TRUE(rows.rows.empty());
  TopSample older = now();
  older.counters = json::object();
  const TopSpan span{older, older};
  EXPECT_EQ(top_json(view, span, top_rows(view, span, {0}))["rows"][0]["longest_step"], "-");
}

TEST(Top, SortsByAnyColumnBothWays) {
  EXPECT_EQ(rows_of("lanes", "busy")[0]["lane"], "1");
  EXPECT_EQ(rows_of("lanes", "busy", true)[0]["lane"], "0");
  EXPECT_EQ(rows_of("jobs", "job", true)[0]["job"], "resnet");
  EXPECT_FALSE(column_of(*find_top_view("jobs"), "nonsense"));
  EXPECT_EQ(find_top_view("nonsense"), nullptr);
}

TEST(Top, CountsFromZeroWhatBeganAnew) {
  TopSample later = now();
  later.tensors[0] = tensor({"aa", "w", 4, 8e5, 2e5, 1, 1});  // declared again
  const TopView& view = *find_top_view("tensors");
  const json rows = top_json(view, {before(), later},
                             top_rows(view, {before(), later}, {*column_of(view, "group")}));
  EXPECT_EQ(rows["rows"][0]["ops_s"], 2.0);
  EXPECT_EQ(rows["rows"][0]["ratio"], 4.0);
}

TEST(Top, AGroupThatLeavesAddsNothingToItsJob) {
  TopSample first = before(), later = now();
  first.groups.push_back({{"uid", "cc"}, {"job", "resnet"}, {"ops_completed", 1'000'000}});
  first.tensors.push_back(tensor({"cc", "w", 9, 4e9, 1e9, 10, 30}));
  const TopView& view = *find_top_view("jobs");
  const json rows = top_json(view, {first, later},
                             top_rows(view, {first, later}, {*column_of(view, "job")}))["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["job"], "resnet");
  EXPECT_EQ(rows[1]["ops_s"], 10.0);
  EXPECT_EQ(rows[1]["sent_s"], 1e6);
}

TEST(Top, AnEpochAndItsSuccessorAreTwoRows) {
  TopSample first = before(), later = now();
  first.tensors = later.tensors = json::array();
  json failed = tensor({"aa", "w", 100, 4e6, 1e6, 10, 30});
  failed["group_number"] = 1;
  json successor = tensor({"aa", "w", 8, 4e4, 1e4, 1, 3});
  successor["group_number"] = 2;
  first.tensors = json::array({failed});
  later.tensors = json::array({failed, successor});
  const TopView& view = *find_top_view("tensors");
  const json rows = top_json(view, {first, later},
                             top_rows(view, {first, later}, {*column_of(view, "ops_s")}))["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["ops_s"], 4.0);
  EXPECT_EQ(rows[1]["ops_s"], 0.0);
}

TEST(Top, IsNotConfusedByAnotherVersionsAnswers) {
  TopSample odd;
  odd.at_s = 12;
  odd.status = json::array({1});
  odd.clients = 7;
  odd.groups = {nullptr, {{"waiting", 3}, {"job", 5}}};
  odd.tensors = {{{"name", json::array()}}};
  odd.peers = "none";
  odd.counters = {{"blocks", 3}, {"lane_busy_ns", {{"lanes", "x"}}}};
  for (const TopView& view : top_views()) {
    const auto rows = top_rows(view, {odd, odd}, {0});
    EXPECT_THAT(render_top(view, {odd, odd}, rows, 0), HasSubstr(view.columns[0].title));
  }
}

TEST(Top, FitsTheScreen) {
  EXPECT_EQ(fit_screen("abc\nde\nf\n", 2, 2), "ab\nde");
  EXPECT_EQ(fit_screen("abc\nde\n", 0, 0), "abc\nde\n");
  EXPECT_EQ(fit_screen("\u00e9\u00e9\u00e9\n", 5, 2), "\u00e9\u00e9\n");
}

}  // namespace
}  // namespace tern::ctl
