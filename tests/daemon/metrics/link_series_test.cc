#include "daemon/metrics/link_series.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace link_series_test {

using nlohmann::json;

json link(const char* group, int bytes, const json& round_trip_us = 100.0) {
  return {{"node_id", "ab"}, {"address", "10.0.0.2:7700"}, {"group", group},
          {"lane", "0"},     {"bytes_sent", bytes},        {"round_trip_us", round_trip_us}};
}

template <typename... Links>
json links(Links... all) {
  return json::array({all...});
}

TEST(LinkSeries, OfOnePeerAreOne) {
  LinkSeries series;
  const json rows = series.rows(links(link("a", 7, 250.0), link("b", 5)));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["node_id"], "ab");
  EXPECT_EQ(rows[0]["bytes_sent"], 12);
  EXPECT_EQ(rows[0]["round_trip_us"], 250);
  EXPECT_FALSE(rows[0].contains("resumes")) << "no link has said";
}

TEST(LinkSeries, DoNotFallWhenOneOfTheirLinksEnds) {
  LinkSeries series;
  series.rows(links(link("a", 100), link("b", 5)));
  EXPECT_EQ(series.rows(links(link("b", 6)))[0]["bytes_sent"], 106);
  EXPECT_EQ(series.rows(links(link("b", 8), link("c", 1)))[0]["bytes_sent"], 109);
  EXPECT_EQ(series.rows(links(link("a", 3), link("c", 1)))[0]["bytes_sent"], 112) << "a is another";
  EXPECT_EQ(series.rows(links(link("a", 2), link("c", 1)))[0]["bytes_sent"], 114) << "so is this";
}

TEST(LinkSeries, BeginAnewWhereNoLinkIsLeft) {
  LinkSeries series;
  series.rows(links(link("a", 100)));
  EXPECT_TRUE(series.rows(json::array()).empty());
  EXPECT_EQ(series.rows(links(link("a", 2)))[0]["bytes_sent"], 2);
}

TEST(LinkSeries, ShowNothingThatWasNotMeasured) {
  EXPECT_FALSE(LinkSeries().rows(links(link("a", 1, nullptr)))[0].contains("round_trip_us"));
}

}  // namespace link_series_test
}  // namespace tern::daemon
