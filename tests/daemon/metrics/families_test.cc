#include "daemon/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "counters/turn_bounds.h"

namespace tern::daemon {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string text_of(const json& status, const json& peers, const json& counters) {
  return prometheus::TextSerializer().Serialize(metric_families(status, peers, counters));
}

TEST(MetricFamilies, HaveBaseUnitsAndTotals) {
  const json status{{"version", "0.1.0"}, {"kernel_target", "avx2"}, {"transport", "tcp"},
                    {"clients", 3},       {"rss_bytes", 4096},       {"silent_lanes", {1, 2}}};
  const json peers{{{"node_id", "ab"},
                    {"address", "10.0.0.2:7700"},
                    {"lane", "0"},
                    {"bytes_sent", 7},
                    {"round_trip_us", 250.0}}};
  const json counters{{"joins", {{"value", 5}, {"unit", "1"}, {"help", "ranks that joined"}}}};
  EXPECT_EQ(
      text_of(status, peers, counters),
      "# HELP tern_build_info Always 1; the labels say what runs.\n"
      "# TYPE tern_build_info gauge\n"
      "tern_build_info{version=\"0.1.0\",kernel_target=\"avx2\",transport=\"tcp\"} 1\n"
      "# HELP tern_clients Connected local processes.\n"
      "# TYPE tern_clients gauge\n"
      "tern_clients 3\n"
      "# HELP tern_resident_memory_bytes Resident memory of the daemon.\n"
      "# TYPE tern_resident_memory_bytes gauge\n"
      "tern_resident_memory_bytes 4096\n"
      "# HELP tern_silent_lanes Lanes that do not answer the conductor; 0 in health.\n"
      "# TYPE tern_silent_lanes gauge\n"
      "tern_silent_lanes 2\n"
      "# HELP tern_link_sent_bytes_total Bytes sent on a link.\n"
      "# TYPE tern_link_sent_bytes_total counter\n"
      "tern_link_sent_bytes_total{node=\"ab\",address=\"10.0.0.2:7700\",lane=\"0\"} 7\n"
      "# HELP tern_link_round_trip_seconds Time from a frame to its acknowledgement.\n"
      "# TYPE tern_link_round_trip_seconds gauge\n"
      "tern_link_round_trip_seconds{node=\"ab\",address=\"10.0.0.2:7700\",lane=\"0\"} 0.00025\n"
      "# HELP tern_joins_total ranks that joined.\n"
      "# TYPE tern_joins_total counter\n"
      "tern_joins_total 5\n");
}

// Of everything that the daemon may say of itself: docs/counters.md is made from these texts.
TEST(MetricFamilies, AreAllInTheTexts) {
  const json status{
      {"version", "0.1.0"},
      {"silent_lanes", json::array()},
      {"clients", 1},
      {"groups", 1},
      {"peers", 1},
      {"lanes", 1},
      {"rss_bytes", 1},
      {"uptime_s", 1},
      {"certificates",
       json::array({{{"kind", "node"}, {"subject", "node1"}, {"not_after_s", 1'800'000'000}}})}};
  const json peers{{{"node_id", "ab"},
                    {"lane", "0"},
                    {"bytes_sent", 1},
                    {"bytes_received", 1},
                    {"frames_sent", 1},
                    {"frames_received", 1},
                    {"resumes", 1},
                    {"replayed_frames", 1},
                    {"unacked_frames", 1},
                    {"round_trip_us", 1.0}}};
  std::set<std::string> families, texts;
  const json counters{{"conductor_turn_ns", {{"value", 1}}},
                      {"lane_turn_ns", {{"value", 1}, {"lanes", {1}}}},
                      {"ops_of_reduce", {{"value", 1}, {"lanes", {1}}}}};
  for (const auto& family : metric_families(status, peers, counters)) families.insert(family.name);
  for (const MetricText& text : metric_texts()) texts.insert(text.name);
  EXPECT_EQ(families, texts);
}

TEST(MetricFamilies, SayUntilWhenCertificatesAreValid) {
  const json status{
      {"certificates",
       json::array({{{"kind", "node"}, {"subject", "node1"}, {"not_after_s", 1'800'000'000}},
                    {{"kind", "authority"}, {"subject", "lab"}, {"not_after_s", 1'900'000'000}}})}};
  const std::string text = text_of(status, json::array(), json::object());
  EXPECT_THAT(text, HasSubstr("tern_certificate_expiry_timestamp_seconds{kind=\"node\",subject="
                              "\"node1\"} 1800000000\n"));
  EXPECT_THAT(text, HasSubstr("{kind=\"authority\",subject=\"lab\"} 1900000000\n"));
}

TEST(MetricFamilies, KnowGaugesAndNanosecondsOfCounters) {
  const json counters{
      {"lane_ops", {{"value", 3}, {"unit", "1"}, {"help", "in flight"}, {"kind", "gauge"}}},
      {"tuner_ns", {{"value", 5e8}, {"unit", "ns"}, {"help", "time"}, {"kind", "counter"}}}};
  const std::string text = text_of(json::object(), json::array(), counters);
  EXPECT_THAT(text, HasSubstr("# TYPE tern_lane_ops gauge\ntern_lane_ops 3\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE tern_tuner_seconds_total counter\n"
                              "tern_tuner_seconds_total 0.5\n"));
}

TEST(MetricFamilies, MakeHistogramsOfTurns) {
  json counters{{"conductor_turn_ns", {{"value", 31'000'000}, {"unit", "ns"}}},
                {"conductor_turns_1ms", {{"value", 3}, {"unit", "1"}}},
                {"conductor_turns_20ms", {{"value", 2}, {"unit", "1"}}},
                {"conductor_turns_longer", {{"value", 1}, {"unit", "1"}}},
                {"lane_turn_ns", {{"value", 5'000}, {"unit", "ns"}, {"lanes", {2'000, 3'000}}}},
                {"lane_turns_100us", {{"value", 9}, {"unit", "1"}, {"lanes", {4, 5}}}}};
  for (const auto& bound : counters::kTurnBounds) {
    counters.emplace(counters::turns_name("conductor", bound), json{{"value", 0}});
    counters.emplace(counters::turns_name("lane", bound), json{{"value", 0}, {"lanes", {0, 0}}});
  }
  const std::string text = text_of(json::object(), json::array(), counters);
  for (const char* line : {
           "# TYPE tern_conductor_turn_seconds histogram\n",
           "tern_conductor_turn_seconds_count 6\n",
           "tern_conductor_turn_seconds_sum 0.031\n",
           "tern_conductor_turn_seconds_bucket{le=\"0.0005\"} 0\n",
           "tern_conductor_turn_seconds_bucket{le=\"0.001\"} 3\n",
           "tern_conductor_turn_seconds_bucket{le=\"0.02\"} 5\n",
           "tern_conductor_turn_seconds_bucket{le=\"1\"} 5\n",
           "tern_conductor_turn_seconds_bucket{le=\"+Inf\"} 6\n",
           "tern_lane_turn_seconds_count{lane=\"0\"} 4\n",
           "tern_lane_turn_seconds_bucket{lane=\"1\",le=\"0.0001\"} 5\n",
           "tern_lane_turn_seconds_bucket{lane=\"1\",le=\"+Inf\"} 5\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(text.find("turns_"), std::string::npos) << "they are no counters of their own";
}

TEST(MetricFamilies, LabelKindsOfOperationsWithThemAndTheirLane) {
  const json counters{{"ops_of_reduce", {{"value", 5}, {"unit", "1"}, {"lanes", {2, 3}}}},
                      {"ops_of_send", {{"value", 7}, {"unit", "1"}, {"lanes", {7, 0}}}}};
  const std::string text = text_of(json::object(), json::array(), counters);
  EXPECT_THAT(text, HasSubstr("# TYPE tern_ops_of_kind_total counter\n"));
  EXPECT_THAT(text, HasSubstr("tern_ops_of_kind_total{kind=\"reduce\",lane=\"1\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("tern_ops_of_kind_total{kind=\"send\",lane=\"0\"} 7\n"));
  EXPECT_EQ(text.find("ops_of_reduce"), std::string::npos) << "they are no counters of their own";
}

TEST(MetricFamilies, LeaveOutWhatIsMissing) {
  EXPECT_EQ(text_of(json::object(), json::array({7, json::object()}), json::object()),
            "# HELP tern_build_info Always 1; the labels say what runs.\n"
            "# TYPE tern_build_info gauge\n"
            "tern_build_info{version=\"\",kernel_target=\"\",transport=\"\"} 1\n");
}

}  // namespace
}  // namespace tern::daemon
