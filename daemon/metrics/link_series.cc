#include "daemon/metrics/link_series.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tern::daemon {
namespace {

using nlohmann::json;

constexpr std::array kCounted{"bytes_sent",      "bytes_received", "frames_sent",
                              "frames_received", "resumes",        "replayed_frames"};
constexpr std::array kShown{"unacked_frames", "round_trip_us"};

std::string label_of(const json& row, const char* field) {
  const auto found = row.is_object() ? row.find(field) : row.end();
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Of the fields that the row has as numbers.
template <typename Fields, typename Use>
void each_number(const json& row, const Fields& fields, Use use) {
  for (const char* const field : fields) {
    const auto found = row.is_object() ? row.find(field) : row.end();
    if (found != row.end() && found->is_number()) use(field, found->template get<double>());
  }
}

}  // namespace

json LinkSeries::rows(const json& peers) {
  std::vector<Key> order;
  std::map<Key, Series> now;
  std::map<Key, json> shown;
  for (const json& row : peers) {
    const Key key{label_of(row, "node_id"), label_of(row, "address"), label_of(row, "lane")};
    if (now.find(key) == now.end()) {
      order.push_back(key);
      shown[key] = {{"node_id", key[0]}, {"address", key[1]}, {"lane", key[2]}};
    }
    Numbers& link = now[key].links[label_of(row, "group")];
    each_number(row, kCounted, [&](const char* field, double number) { link[field] += number; });
    each_number(row, kShown, [&](const char* field, double number) {
      json& largest = shown[key][field];
      largest = std::max(largest.is_number() ? largest.get<double>() : 0.0, number);
    });
  }
  json rows = json::array();
  for (const Key& key : order) {
    Series& series = now[key];
    const Series& before = series_[key];
    series.totals = before.totals;
    for (const auto& [group, numbers] : series.links) {
      const auto known = before.links.find(group);
      for (const auto& [field, number] : numbers) {
        const bool has_last = known != before.links.end() && known->second.count(field) > 0;
        const double last = has_last ? known->second.at(field) : 0.0;
        series.totals[field] += number >= last ? number - last : number;  // less: it is another
      }
    }
    json row = std::move(shown[key]);
    for (const auto& [field, total] : series.totals) row[field] = total;
    rows.push_back(std::move(row));
  }
  series_ = std::move(now);
  return rows;
}

}  // namespace tern::daemon
