// Groups, and joins of what becomes groups, as the operator sees them.

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "daemon/conductor/reports.h"
#include "plan/plans.h"

namespace tern::daemon {
namespace {

// Beside kRowsOfCall: a join of the largest group has 1,024 ranks here or elsewhere, each a number.
constexpr std::size_t kNumbersOfCall = 4096;

std::size_t numbers_in(const nlohmann::json& group) {
  std::size_t numbers = group["local_ranks"].size();
  for (const nlohmann::json& waiting : group["waiting"]) numbers += waiting["ranks"].size();
  return numbers;
}

const char* group_state(const MemberGroup& group) noexcept {
  if (group.has_ended()) return group.end_code == Errc::group_left ? "leaving" : "failed";
  if (group.phase == MemberGroup::Phase::starting) return "joining";
  const bool leaving =
      std::any_of(group.ranks.begin(), group.ranks.end(),
                  [](const MemberRank& rank) { return rank.phase >= MemberRank::Phase::leaving; });
  return leaving ? "leaving" : "running";
}

// A lane may have said that after this thread has read the clock.
double seconds_since(std::uint64_t since_ns, std::uint64_t now_ns) {
  return static_cast<double>(now_ns - std::min(now_ns, since_ns)) / 1e9;
}

}  // namespace

void Reports::Progress::add(const MemberGroup& group) {
  for (const auto& lane : group.lanes) {
    in_flight += lane->gauges().counted_in_flight();
    completed += lane->gauges().counted_completed();
  }
}

// Of ranks that wait for their group.
nlohmann::json Reports::joining_row(const std::string& uid, const JoinSet& set) const {
  nlohmann::json ranks = nlohmann::json::array();
  for (const auto& [rank, joining] : set.ranks) ranks.push_back(rank);
  const std::uint64_t now = of_.outlets.clock.now_ns();
  return {{"number", 0},
          {"uid", uid.substr(0, 8)},
          {"job", ""},
          {"epoch", 0},
          {"state", "joining"},
          {"size", set.ranks.empty() ? 0 : number_of(set.ranks.begin()->second.message, "size")},
          {"nodes", 0},
          {"local_ranks", ranks},
          {"lanes", 0},
          {"ops_completed", 0},
          {"ops_in_flight", 0},
          {"waiting",
           nlohmann::json::array({{{"tensor", "the group"},
                                   {"op", "join"},
                                   {"ranks", set.missing.value_or(std::vector<std::uint32_t>())},
                                   {"seconds", seconds_since(set.since_ns(), now)}}})},
          {"error", ""}};
}

// Ops of the group that lanes keep waiting for some ranks.
nlohmann::json Reports::waiting_rows(const MemberGroup& group) const {
  const std::uint64_t now = of_.outlets.clock.now_ns();
  nlohmann::json rows = nlohmann::json::array();
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;  // an op may wait on several lanes
  for (const auto& lane : group.lanes) {
    for (const WaitingOp& op : lane->gauges().waiting()) {
      const TensorState* const tensor = group.tensor(op.tensor);
      nlohmann::json ranks = nlohmann::json::array();
      for (std::size_t i = 0; i < std::min<std::size_t>(op.missing, WaitingOp::kShown); ++i) {
        ranks.push_back(op.ranks[i]);
      }
      const plan::Plan* const plan = plan::find(static_cast<std::uint16_t>(op.kind));
      const bool passes = plan != nullptr && plan->passes();
      if (!passes && !seen.emplace(op.tensor, op.sequence).second) continue;
      const std::string number = std::to_string(op.sequence);
      const std::string anonymous = (passes ? "tag " : "#") + number;
      nlohmann::json row = {{"tensor", tensor == nullptr ? anonymous : tensor->name},
                            {"op", plan::name_of(op.kind)},
                            {"ranks", ranks},
                            {"seconds", seconds_since(op.since_ns, now)}};
      if (passes) row["tag"] = op.sequence;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

nlohmann::json Reports::group_row(const MemberGroup& group) const {
  nlohmann::json local = nlohmann::json::array();
  for (const auto& rank : group.ranks) local.push_back(rank.rank);
  Progress progress;
  progress.add(group);
  nlohmann::json waiting = waiting_rows(group);
  // An op may wait on one lane after it has ended on the one that counts it; lanes publish apart.
  const std::uint64_t in_flight = std::max<std::uint64_t>(progress.in_flight, waiting.size());
  return {
      {"number", group.number},
      {"uid", group.uid.substr(0, 8)},
      {"job", group.job},
      {"epoch", group.epoch},
      {"state", group_state(group)},
      {"size", group.size},
      {"nodes", group.addresses.size()},
      {"local_ranks", local},
      {"lanes", group.lane_count},
      {"ops_completed", progress.completed},
      {"ops_in_flight", in_flight},
      {"waiting", std::move(waiting)},
      {"error",
       group.has_ended() ? std::string(errc_name(group.end_code)) + ": " + group.end_text : ""}};
}

RowSource Reports::groups(const Scope& scope) const {
  struct Last {
    bool has_joins = true;  // perhaps, after this one
    std::string join;       // by uid
    std::uint64_t group = 0;
  };
  return [this, scope, last = Last()](nlohmann::json& rows) mutable {
    const auto& joins = of_.joins.all();
    const auto& groups = of_.groups.all();
    std::size_t passed = 0, numbers = 0;
    const auto has_room = [&] {
      return rows.size() < kRowsOfCall && numbers < kNumbersOfCall && passed < kPassedOfCall;
    };
    const auto add = [&](nlohmann::json row) {
      numbers += numbers_in(row);
      rows.push_back(std::move(row));
    };
    for (; last.has_joins && has_room(); ++passed) {
      const auto at = joins.upper_bound(last.join);
      last.has_joins = at != joins.end();
      if (!last.has_joins) break;
      last.join = at->first;
      if (scope.has(at->second.users())) add(joining_row(at->first, at->second));
    }
    for (; has_room(); ++passed) {
      const auto at = groups.upper_bound(last.group);
      if (at == groups.end()) return false;
      last.group = at->first;
      if (scope.has(at->second->users)) add(group_row(*at->second));
    }
    return true;
  };
}

}  // namespace tern::daemon
