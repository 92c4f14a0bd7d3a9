#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ctl/trace_events.h"
#include "ctl/trace_merge.h"
#include "tests/ctl/trace_schema.h"

namespace tern::ctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json summary(const char* node, std::int64_t steady_ns, json clocks) {
  return {{"node_id", node},
          {"software", "0.1.0"},
          {"pid", 77},
          {"steady_ns", steady_ns},
          {"wall_ns", 1'000'000'000'000},
          {"lanes", 2},
          {"clocks", std::move(clocks)},
          {"groups", json::array({{{"number", 3},
                                   {"uid", "ab12cd34"},
                                   {"job", "resnet"},
                                   {"nodes", {"10.0.0.1:7700", "10.0.0.2:7700"}},
                                   {"tensors", {{"12345678901234567890", "layer1"}}}}})},
          {"changes", json::array({{{"at_ns", 5'000'000},
                                    {"tensor", "layer1"},
                                    {"from", "raw"},
                                    {"to", "3lc:s=1"},
                                    {"reason", "the least predicted time"},
                                    {"trial", false}}})}};
}

json event(const char* kind, std::int64_t begin_ns, std::int64_t end_ns) {
  return {{"kind", kind},
          {"begin_ns", begin_ns},
          {"end_ns", end_ns},
          {"group", 3},
          {"tensor", 12345678901234567890u},
          {"sequence", 9},
          {"bytes", 1000},
          {"bytes_raw", 4000},
          {"op", "all_reduce"},
          {"result", "ok"},
          {"codec", "3lc"},
          {"chunk", 2},
          {"node", 1}};
}

json document_of(const json& summary, const std::vector<json>& pages) {
  json events = json::array();
  TraceEvents trace(summary, [&events](const json& one) { events.push_back(one); });
  trace.add_node();
  for (std::size_t lane = 0; lane < pages.size(); ++lane) trace.add_lane(lane, pages[lane]);
  return {{"traceEvents", events}, {"otherData", trace.other_data()}};
}

const json* find(const json& document, const std::string& name, const std::string& phase) {
  for (const json& one : document["traceEvents"]) {
    if (one["name"] == name && one["ph"] == phase) return &one;
  }
  return nullptr;
}

TEST(TraceEvents, AreSlicesPairsAndRecipeChanges) {
  const json page{{"events",
                   {event("op", 1'000'000, 9'000'000), event("encode", 2'000'000, 2'500'000),
                    event("wire", 2'500'000, 8'000'000), event("decode", 8'000'000, 8'250'000)}}};
  const json document = document_of(summary("aa", 0, json::array()), {page, page});
  EXPECT_EQ(trace_fault(document), "");
  const json* const encode = find(document, "encode 3lc", "X");
  ASSERT_NE(encode, nullptr) << document.dump(1);
  EXPECT_EQ((*encode)["ts"], 2000.0);
  EXPECT_EQ((*encode)["dur"], 500.0);
  EXPECT_EQ((*encode)["args"]["tensor"], "layer1");
  EXPECT_EQ((*encode)["args"]["node"], "10.0.0.2:7700");
  EXPECT_EQ((*encode)["args"]["bytes"], 1000);
  ASSERT_NE(find(document, "all_reduce layer1", "b"), nullptr);
  EXPECT_EQ((*find(document, "all_reduce layer1", "e"))["ts"], 9000.0);
  EXPECT_NE(find(document, "wire", "b"), nullptr);
  const json* const change = find(document, "recipe of layer1: 3lc:s=1", "i");
  ASSERT_NE(change, nullptr);
  EXPECT_EQ((*change)["args"]["reason"], "the least predicted time");
  EXPECT_EQ((*change)["args"]["from"], "raw");
}

TEST(TraceEvents, HaveATrackOfEachDevice) {
  const auto row = [](std::uint64_t at_ns, std::uint64_t count, std::uint64_t ns) {
    return json{{"at_ns", at_ns},       {"client", 3},      {"job", "resnet"},
                {"device", 1},          {"encodes", count}, {"encode_ns", ns},
                {"decodes", 2 * count}, {"decode_ns", ns},  {"device_bytes", 100},
                {"pinned_bytes", 10}};
  };
  json said = summary("aa", 0, json::array());
  said["devices"] = {row(1'000'000, 10, 10'000'000), row(2'000'000, 12, 16'000'000),
                     row(3'000'000, 12, 16'000'000), row(4'000'000, 1, 5'000'000)};
  const json document = document_of(said, {});
  EXPECT_EQ(trace_fault(document), "");
  std::vector<json> times;
  std::size_t of_bytes = 0;
  for (const json& one : document["traceEvents"]) {
    if (one["name"] == "device 1 of client 3 (resnet): ms") times.push_back(one);
    if (one["name"] == "device 1 of client 3 (resnet): bytes") {
      ++of_bytes;
      EXPECT_EQ(one["args"], (json{{"held", 100}, {"pinned", 10}}));
    }
  }
  EXPECT_EQ(of_bytes, 4u);
  ASSERT_EQ(times.size(), 1u) << "of the first there is nothing to compare with";
  EXPECT_EQ(times[0]["ts"], 2000.0);
  EXPECT_EQ(times[0]["args"], (json{{"encode", 3.0}, {"decode", 1.5}}));
}

TEST(TraceEvents, SayWhatWasDropped) {
  const json page{{"events", json::array({event("encode", 2'000'000, 2'500'000)})},
                  {"dropped", 12}};
  const json document = document_of(summary("aa", 0, json::array()), {page});
  EXPECT_EQ(trace_fault(document), "");
  EXPECT_NE(find(document, "12 older events were dropped", "i"), nullptr);
  EXPECT_EQ(document["otherData"]["dropped_events"], 12);
}

TEST(TraceEvents, AreNotConfusedByAnotherVersionsAnswers) {
  const json page{
      {"events", {7, {{"kind", 3}}, {{"kind", "encode"}}, {{"kind", "new"}, {"begin_ns", 5}}}}};
  const json odd{{"groups", 5}, {"changes", {nullptr}}, {"lanes", "x"}, {"devices", {7, {{}}}}};
  EXPECT_EQ(trace_fault(document_of(odd, {page, json(), json::array()})), "");
}

TEST(TraceSchema, FindsWhatIsWrong) {
  const json good{{"ph", "X"}, {"pid", 1}, {"tid", 1}, {"ts", 1.0}, {"dur", 5.0}, {"name", "x"}};
  const auto fault = [](std::vector<json> events) {
    return trace_fault({{"traceEvents", events}});
  };
  EXPECT_EQ(fault({good}), "");
  json bad = good;
  bad.erase("dur");
  EXPECT_THAT(fault({bad}), HasSubstr("no dur"));
  bad = good;
  bad["ts"] = 3.0;
  EXPECT_THAT(fault({good, bad}), HasSubstr("overlap"));
  bad = good;
  bad["ph"] = "b";
  bad["cat"] = "op";
  bad["id2"] = {{"local", "0x1"}};
  EXPECT_THAT(fault({bad}), HasSubstr("never ends"));
  bad["ph"] = "e";
  EXPECT_THAT(fault({bad}), HasSubstr("has not begun"));
  EXPECT_THAT(fault({{{"ph", "X"}}}), HasSubstr("no pid"));
  bad["ph"] = "C";
  EXPECT_THAT(fault({bad}), HasSubstr("counts nothing"));
  bad["args"] = {{"x", "y"}};
  EXPECT_THAT(fault({bad}), HasSubstr("no number"));
}

// ---- Several nodes

class TraceMerge : public ::testing::Test {
 protected:
  json merge(const std::vector<json>& documents) {
    std::vector<NamedTrace> traces;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      traces.push_back({"trace" + std::to_string(i), &documents[i]});
    }
    json events = json::array();
    auto merged = merge_traces(traces, [&events](const json& one) { events.push_back(one); });
    if (!merged) {
      error = merged.error().text;
      return json();
    }
    notes = *merged;
    return {{"traceEvents", events}};
  }
  static double begin_of(const json& document, int pid) {
    for (const json& one : document["traceEvents"]) {
      if (one["pid"] == pid && one["ph"] == "X") return one["ts"];
    }
    return -1;
  }
  static json trace(const char* node, std::int64_t steady_ns, std::int64_t at_ns, json clocks) {
    const json page{{"events", json::array({event("encode", at_ns, at_ns + 1000)})}};
    return document_of(summary(node, steady_ns, std::move(clocks)), {page});
  }
  static json clock(const char* node, std::int64_t offset_ns, std::int64_t error_ns = 100) {
    return {{"node_id", node}, {"offset_ns", offset_ns}, {"error_ns", error_ns}};
  }

  std::vector<std::string> notes;
  std::string error;
};

TEST_F(TraceMerge, PutsAllOnTheClockOfTheFirst) {
  // b is 3 s ahead of a, as a found; c is 1 s behind b, as c found of b. The worse of two links to
  // b is wrong and does not count.
  const json merged =
      merge({trace("a", 0, 5'000'000'000,
                   json::array({clock("b", 3'000'000'000), clock("b", 9, 5'000'000)})),
             trace("b", 0, 8'000'000'000, json::array()),
             trace("c", 0, 7'000'000'000, json::array({clock("b", 1'000'000'000)}))});
  ASSERT_EQ(error, "");
  EXPECT_EQ(trace_fault(merged), "");
  EXPECT_GT(begin_of(merged, 1), 0);
  for (const int pid : {2, 3}) {
    EXPECT_NEAR(begin_of(merged, pid), begin_of(merged, 1), 0.01) << pid;
  }
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_THAT(notes[1], HasSubstr("is known to"));
}

TEST_F(TraceMerge, FallsBackOnTheCalendarsAndSaysSo) {
  // The same moment of the calendar is 2 s on one clock and 6 s on the other.
  const json merged = merge({trace("a", 2'000'000'000, 5'000'000'000, json::array()),
                             trace("b", 6'000'000'000, 9'000'000'000, json::array())});
  EXPECT_NEAR(begin_of(merged, 1), begin_of(merged, 2), 0.01);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("calendars"));
}

TEST_F(TraceMerge, ShiftsWhatWasBeforeTheFirstMachineBegan) {
  const json merged =
      merge({trace("a", 0, 1'000'000'000, json::array({clock("b", 50'000'000'000)})),
             trace("b", 0, 20'000'000'000, json::array())});
  EXPECT_EQ(trace_fault(merged), "");
  EXPECT_NEAR(begin_of(merged, 1) - begin_of(merged, 2), 31e6, 0.01);
}

TEST_F(TraceMerge, NamesAFileThatIsNoTrace) {
  merge({trace("a", 0, 1'000'000'000, json::array()), {{"traceEvents", {7}}, {"otherData", {}}}});
  EXPECT_THAT(error, HasSubstr("trace1"));
  merge({json::array()});
  EXPECT_THAT(error, HasSubstr("trace0"));
}

}  // namespace
}  // namespace tern::ctl
