// What each view of `ternctl top` shows.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "counters/turn_bounds.h"
#include "ctl/fields.h"
#include "ctl/human.h"
#include "ctl/top.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

constexpr Align kLeft = Align::left;
constexpr std::array<const char*, 5> kStages{"encode_ms", "queue_ms", "wire_ms", "decode_ms",
                                             "wait_ms"};

double number_at(const json& object, std::string_view key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_number() ? found->get<double>()
                                                                           : 0.0;
}

TopCell text_cell(std::string text) { return {std::move(text), 0, true}; }
TopCell field_cell(const json& row, std::string_view key) {
  return text_cell(text_field(row, key));
}
TopCell count_cell(double count) {
  return {human_count(static_cast<std::uint64_t>(std::max(0.0, count))), count, false};
}
TopCell rate_cell(double per_s) { return {fmt::format("{:.1f}", per_s), per_s, false}; }
TopCell bytes_cell(double per_s) { return {human_bytes(per_s), per_s, false}; }
// Of a time: "37%".
TopCell share_cell(double share) { return {fmt::format("{:.0f}%", 100 * share), share, false}; }

// By how much numbers have grown that only grow, from one sample to the next: of all rows that are
// counted under a name together. A row that was not there before, or that began anew, has grown
// from zero; one that is gone has not grown.
class Growth {
 public:
  // `row_name` tells the rows under a name apart; those of one row name are counted as one row.
  void add_before(const std::string& name, const std::string& row_name, const json& row) {
    add(before_[name][row_name], row);
  }
  void add_now(const std::string& name, const std::string& row_name, const json& row) {
    add(now_[name][row_name], row);
  }

  double of(const std::string& name, std::string_view key) const {
    const auto rows = now_.find(name);
    if (rows == now_.end()) return 0;
    double grown = 0;
    for (const auto& [row_name, totals] : rows->second) {
      const double present = at(totals, key), last = at_last(name, row_name, key);
      grown += present >= last ? present - last : present;
    }
    return grown;
  }

 private:
  using Totals = std::map<std::string, double, std::less<>>;
  using Rows = std::map<std::string, Totals, std::less<>>;

  static void add(Totals& totals, const json& row) {
    if (!row.is_object()) return;
    for (const auto& [key, value] : row.items()) {
      if (value.is_number()) totals[key] += value.get<double>();
    }
  }
  static double at(const Totals& totals, std::string_view key) {
    const auto value = totals.find(key);
    return value == totals.end() ? 0 : value->second;
  }
  double at_last(const std::string& name, const std::string& row_name, std::string_view key) const {
    const auto rows = before_.find(name);
    if (rows == before_.end()) return 0;
    const auto totals = rows->second.find(row_name);
    return totals == rows->second.end() ? 0 : at(totals->second, key);
  }

  std::map<std::string, Rows, std::less<>> before_, now_;
};

std::string group_name(const json& group) {
  return text_field(group, "uid") + "/" + text_field(group, "number");
}

// An epoch that failed and its successor have tensors of the same names, and are different groups.
std::string tensor_name(const json& tensor) {
  return text_field(tensor, "group") + "/" + text_field(tensor, "group_number") + "/" +
         text_field(tensor, "name");
}

double seconds_between(const TopSample& before, const TopSample& now) {
  return std::max(1e-3, now.at_s - before.at_s);
}

// Traffic of tensors: bytes a second raw and sent, the ratio, and where the time went.
void add_traffic(std::vector<TopCell>& cells, const Growth& growth, const std::string& name,
                 double seconds) {
  const double raw = growth.of(name, "bytes_raw"), sent = growth.of(name, "bytes_sent");
  cells.push_back(bytes_cell(raw / seconds));
  cells.push_back(bytes_cell(sent / seconds));
  const double ratio = sent > 0 ? raw / sent : 0;
  cells.push_back({sent > 0 ? human_ratio(ratio) : "-", ratio, false});
  double whole = 0;
  for (const char* stage : kStages) whole += growth.of(name, stage);
  for (const char* stage : kStages) {
    cells.push_back(share_cell(whole > 0 ? growth.of(name, stage) / whole : 0));
  }
}

constexpr std::array kTrafficColumns{TopColumn{"raw_s", "RAW/S"},   TopColumn{"sent_s", "SENT/S"},
                                     TopColumn{"ratio", "RATIO"},   TopColumn{"encode", "ENCODE"},
                                     TopColumn{"queue", "QUEUE"},   TopColumn{"wire", "WIRE"},
                                     TopColumn{"decode", "DECODE"}, TopColumn{"wait", "WAIT"}};

template <std::size_t... kSizes>
constexpr auto joined(const std::array<TopColumn, kSizes>&... parts) {
  std::array<TopColumn, (kSizes + ...)> all{};
  auto at = all.begin();
  ((at = std::copy(parts.begin(), parts.end(), at)), ...);
  return all;
}

// ---- Jobs

constexpr auto kJobColumns =
    joined(std::array{TopColumn{"job", "JOB", kLeft}, TopColumn{"clients", "CLIENTS"},
                      TopColumn{"groups", "GROUPS"}, TopColumn{"in_flight", "IN FLIGHT"},
                      TopColumn{"waiting", "WAITING"}, TopColumn{"ops_s", "OPS/S"}},
           kTrafficColumns);

std::vector<std::vector<TopCell>> job_rows(const TopSample& before, const TopSample& now) {
  struct Job {
    double clients = 0, groups = 0, in_flight = 0, waiting = 0;
  };
  std::map<std::string, Job> jobs;
  Growth growth;
  for (const json& client : rows_of(now.clients)) ++jobs[text_field(client, "job")].clients;
  const auto add_sample = [&growth](const TopSample& sample, auto add) {
    std::map<std::string, std::string> job_of;
    for (const json& group : rows_of(sample.groups)) {
      job_of[text_field(group, "uid")] = text_field(group, "job");
      (growth.*add)(text_field(group, "job"), group_name(group), group);
    }
    for (const json& tensor : rows_of(sample.tensors)) {
      (growth.*add)(job_of[text_field(tensor, "group")], tensor_name(tensor), tensor);
    }
  };
  add_sample(before, &Growth::add_before);
  add_sample(now, &Growth::add_now);
  for (const json& group : rows_of(now.groups)) {
    Job& job = jobs[text_field(group, "job")];
    ++job.groups;
    job.in_flight += number_at(group, "ops_in_flight");
    const auto waiting = group.is_object() ? group.find("waiting") : group.end();
    if (group.is_object() && waiting != group.end() && waiting->is_array()) {
      job.waiting += static_cast<double>(waiting->size());
    }
  }
  std::vector<std::vector<TopCell>> rows;
  const double seconds = seconds_between(before, now);
  for (const auto& [name, job] : jobs) {
    std::vector<TopCell> cells{
        text_cell(name),         count_cell(job.clients),
        count_cell(job.groups),  count_cell(job.in_flight),
        count_cell(job.waiting), rate_cell(growth.of(name, "ops_completed") / seconds)};
    add_traffic(cells, growth, name, seconds);
    rows.push_back(std::move(cells));
  }
  return rows;
}

// ---- Tensors

constexpr auto kTensorColumns =
    joined(std::array{TopColumn{"tensor", "TENSOR", kLeft}, TopColumn{"group", "GROUP", kLeft},
                      TopColumn{"ops_s", "OPS/S"}},
           kTrafficColumns,
           std::array{TopColumn{"residual", "RESIDUAL"}, TopColumn{"operation", "OPERATION", kLeft},
                      TopColumn{"recipe", "RECIPE", kLeft}});

std::vector<std::vector<TopCell>> tensor_rows(const TopSample& before, const TopSample& now) {
  Growth growth;
  for (const json& tensor : rows_of(before.tensors)) {
    growth.add_before(tensor_name(tensor), "", tensor);
  }
  for (const json& tensor : rows_of(now.tensors)) growth.add_now(tensor_name(tensor), "", tensor);
  std::vector<std::vector<TopCell>> rows;
  const double seconds = seconds_between(before, now);
  for (const json& tensor : rows_of(now.tensors)) {
    const std::string name = tensor_name(tensor);
    std::vector<TopCell> cells{field_cell(tensor, "name"), field_cell(tensor, "group"),
                               rate_cell(growth.of(name, "ops") / seconds)};
    add_traffic(cells, growth, name, seconds);
    const double residual = number_at(tensor, "residual_ratio");
    cells.push_back({fmt::format("{:.3g}", residual), residual, false});
    cells.push_back(field_cell(tensor, "operation"));
    cells.push_back(field_cell(tensor, "recipe"));
    rows.push_back(std::move(cells));
  }
  return rows;
}

// ---- Peers

constexpr std::array kPeerColumns{TopColumn{"address", "ADDRESS", kLeft},
                                  TopColumn{"group", "GROUP", kLeft},
                                  TopColumn{"lane", "LANE", kLeft},
                                  TopColumn{"state", "STATE", kLeft},
                                  TopColumn{"transport", "TRANSPORT", kLeft},
                                  TopColumn{"sent_s", "SENT/S"},
                                  TopColumn{"received_s", "RECEIVED/S"},
                                  TopColumn{"frames_s", "FRAMES/S"},
                                  TopColumn{"round_trip_us", "ROUND TRIP"},
                                  TopColumn{"unacked", "UNACKED"},
                                  TopColumn{"resumes", "RESUMES"}};

std::vector<std::vector<TopCell>> peer_rows(const TopSample& before, const TopSample& now) {
  const auto name_of = [](const json& peer) {
    return text_field(peer, "node_id") + "/" + text_field(peer, "group") + "/" +
           text_field(peer, "lane");
  };
  Growth growth;
  for (const json& peer : rows_of(before.peers)) growth.add_before(name_of(peer), "", peer);
  for (const json& peer : rows_of(now.peers)) growth.add_now(name_of(peer), "", peer);
  std::vector<std::vector<TopCell>> rows;
  const double seconds = seconds_between(before, now);
  for (const json& peer : rows_of(now.peers)) {
    const std::string name = name_of(peer);
    rows.push_back(
        {field_cell(peer, "address"),
         field_cell(peer, "group"),
         field_cell(peer, "lane"),
         field_cell(peer, "state"),
         field_cell(peer, "transport"),
         bytes_cell(growth.of(name, "bytes_sent") / seconds),
         bytes_cell(growth.of(name, "bytes_received") / seconds),
         rate_cell((growth.of(name, "frames_sent") + growth.of(name, "frames_received")) / seconds),
         {time_field(peer, "round_trip_us", 1e-6), number_at(peer, "round_trip_us"), false},
         count_cell(number_at(peer, "unacked_frames")),
         count_cell(number_at(peer, "resumes"))});
  }
  return rows;
}

// ---- Lanes

constexpr std::array kLaneColumns{
    TopColumn{"lane", "LANE", kLeft},      TopColumn{"busy", "BUSY"},
    TopColumn{"codec", "CODEC"},           TopColumn{"ops_s", "OPS/S"},
    TopColumn{"blocks_s", "BLOCKS/S"},     TopColumn{"bytes_s", "BYTES/S"},
    TopColumn{"sleeps_s", "SLEEPS/S"},     TopColumn{"in_flight", "IN FLIGHT"},
    TopColumn{"unacked", "UNACKED"},       TopColumn{"waiting", "WAITING"},
    TopColumn{"turn_p99_s", "P99 TURN"},   TopColumn{"longest_turn_s", "LONGEST"},
    TopColumn{"longest_step", "IN", kLeft}};

// What 99 of 100 turns between the samples did not exceed, as near as their counters tell.
TopCell turn_cell(const Growth& growth, const std::string& lane) {
  const auto turns = [&](const counters::TurnBound& bound) {
    return growth.of(lane, counters::turns_name("lane", bound));
  };
  double all = 0, passed = 0;
  for (const counters::TurnBound& bound : counters::kTurnBounds) all += turns(bound);
  if (all == 0) return {"-", 0, false};
  std::uint64_t up_to_ns = 0;
  for (const counters::TurnBound& bound : counters::kTurnBounds) {
    if (passed >= 0.99 * all) break;
    passed += turns(bound);
    if (turns(bound) > 0) up_to_ns = bound.up_to_ns;
  }
  if (up_to_ns == counters::kTurnBounds.back().up_to_ns) {
    const double most_s = 1e-9 * static_cast<double>((counters::kTurnBounds.end() - 2)->up_to_ns);
    return {"> " + human_seconds(most_s), most_s, false};
  }
  const double seconds = 1e-9 * static_cast<double>(up_to_ns);
  return {human_seconds(seconds), seconds, false};
}

// Of the n-th lane; "-" if the daemon does not say.
std::string longest_step(const json& counters, std::size_t lane) {
  const auto row = counters.is_object() ? counters.find("lane_longest_turn_ns") : counters.end();
  if (!counters.is_object() || row == counters.end()) return "-";
  const json& steps = rows_of(*row, "steps");
  return lane < steps.size() ? text_field({{"step", steps[lane]}}, "step") : "-";
}

// The counters of one lane, as a row.
json lane_of(const json& counters, std::size_t lane) {
  json row = json::object();
  if (!counters.is_object()) return row;
  for (const auto& [name, counter] : counters.items()) {
    const auto lanes = counter.is_object() ? counter.find("lanes") : counter.end();
    if (!counter.is_object() || lanes == counter.end() || !lanes->is_array()) continue;
    if (lane < lanes->size() && (*lanes)[lane].is_number()) row[name] = (*lanes)[lane];
  }
  return row;
}

std::vector<std::vector<TopCell>> lane_rows(const TopSample& before, const TopSample& now) {
  std::vector<std::vector<TopCell>> rows;
  const double seconds = seconds_between(before, now);
  const auto lanes = static_cast<std::size_t>(number_at(now.status, "lanes"));
  for (std::size_t lane = 0; lane < std::min<std::size_t>(lanes, 1024); ++lane) {
    const std::string name = std::to_string(lane);
    Growth growth;
    const json present = lane_of(now.counters, lane);
    growth.add_before(name, "", lane_of(before.counters, lane));
    growth.add_now(name, "", present);
    const auto per_s = [&](std::string_view key) { return growth.of(name, key) / seconds; };
    const double longest_s = 1e-9 * number_at(present, "lane_longest_turn_ns");
    rows.push_back({text_cell(name),
                    share_cell(per_s("lane_busy_ns") / 1e9),
                    share_cell(per_s("lane_codec_ns") / 1e9),
                    rate_cell(per_s("ops_completed")),
                    rate_cell(per_s("blocks")),
                    bytes_cell(per_s("block_bytes")),
                    rate_cell(per_s("sleeps")),
                    count_cell(number_at(present, "lane_ops")),
                    count_cell(number_at(present, "lane_unacked_blocks")),
                    count_cell(number_at(present, "lane_waiting_blocks")),
                    turn_cell(growth, name),
                    {human_seconds(longest_s), longest_s, false},
                    text_cell(longest_step(now.counters, lane))});
  }
  return rows;
}

constexpr std::array kViews{
    TopView{"jobs", "sent_s", kJobColumns, job_rows, &TopSample::groups},
    TopView{"tensors", "sent_s", kTensorColumns, tensor_rows, &TopSample::tensors},
    TopView{"peers", "sent_s", kPeerColumns, peer_rows, &TopSample::peers},
    TopView{"lanes", "lane", kLaneColumns, lane_rows, &TopSample::counters}};

}  // namespace

std::span<const TopView> top_views() { return kViews; }

}  // namespace tern::ctl
