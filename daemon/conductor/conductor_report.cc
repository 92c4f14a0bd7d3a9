// What the operator sees: docs/control-protocol.md describes every field.

#include <algorithm>

#include "daemon/conductor/conductor.h"
#include "plan/plans.h"

namespace tern::daemon {
namespace {

const char* state_name(net::LinkState state) noexcept {
  switch (state) {
    case net::LinkState::connecting:
      return "connecting";
    case net::LinkState::open:
      return "up";
    case net::LinkState::broken:
      return "resuming";
    case net::LinkState::lost:
      return "closed";
  }
  return "unknown";
}

nlohmann::json peer_row(const std::string& node, const std::string& address,
                        const std::string& group, const std::string& lane, net::LinkState state,
                        const net::LinkStats& stats, std::uint64_t unacked_frames,
                        const char* transport) {
  const bool known = stats.clock_error_ns != net::LinkStats::kUnknown;
  return {{"node_id", node},
          {"address", address},
          {"group", group},
          {"lane", lane},
          {"state", state_name(state)},
          {"round_trip_us", static_cast<double>(stats.round_trip_ns) / 1000.0},
          {"bytes_sent", stats.bytes_sent},
          {"bytes_received", stats.bytes_received},
          {"frames_sent", stats.frames_sent},
          {"frames_received", stats.frames_received},
          {"resumes", stats.resumes},
          {"replayed_frames", stats.replayed_frames},
          {"unacked_frames", unacked_frames},
          {"transport", transport},
          {"transport_note", ""},
          {"failovers", 0},
          {"clock_offset_ns", known ? nlohmann::json(stats.clock_offset_ns) : nlohmann::json()},
          {"clock_error_ns", known ? nlohmann::json(stats.clock_error_ns) : nlohmann::json()}};
}

// How far the calendar of each peer is ahead of ours: by way of the clocks, whose distance the
// surest of the links to it tells.
void add_skews(const std::map<std::string, std::int64_t>& calendars, std::int64_t own_calendar_ns,
               nlohmann::json& rows) {
  struct Clock {
    double ahead_ns, error_ns;
  };
  std::map<std::string, Clock> clocks;
  for (const nlohmann::json& row : rows) {
    if (row["clock_error_ns"].is_null()) continue;
    const Clock seen{row["clock_offset_ns"].get<double>(), row["clock_error_ns"].get<double>()};
    const auto [at, fresh] = clocks.emplace(row["node_id"].get<std::string>(), seen);
    if (!fresh && seen.error_ns < at->second.error_ns) at->second = seen;
  }
  for (nlohmann::json& row : rows) {
    const std::string node = row["node_id"];
    const auto calendar = calendars.find(node);
    const auto clock = clocks.find(node);
    if (row["lane"] != "control" || calendar == calendars.end() || clock == clocks.end()) continue;
    // In floating point: a peer may say anything of its calendar.
    row["calendar_skew_ms"] = (clock->second.ahead_ns + static_cast<double>(calendar->second) -
                               static_cast<double>(own_calendar_ns)) /
                              1e6;
    row["calendar_error_ms"] = clock->second.error_ns / 1e6;
  }
}

const char* group_state(const MemberGroup& group) noexcept {
  if (group.ended) return group.end_code == Errc::group_left ? "leaving" : "failed";
  if (!group.started) return "joining";
  const bool leaving = std::any_of(group.ranks.begin(), group.ranks.end(),
                                   [](const MemberRank& rank) { return rank.leaving; });
  return leaving ? "leaving" : "running";
}

double ms(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }

}  // namespace

nlohmann::json Conductor::report_clients(const Scope& scope) const {
  nlohmann::json rows = nlohmann::json::array();
  const std::uint64_t now = clock_.now_ns();
  for (const auto& [id, client] : clients_) {
    if (!client->memory || !scope.has(client->credentials.uid)) continue;
    std::uint64_t groups = 0, in_flight = 0, completed = 0;
    for (const auto& [number, group] : groups_) {
      const bool member = std::any_of(
          group->ranks.begin(), group->ranks.end(),
          [&client = *client](const auto& rank) { return rank.client == client.id && !rank.left; });
      if (!member) continue;
      ++groups;
      for (const auto& lane : group->lanes) {
        in_flight = std::max<std::uint64_t>(in_flight, lane->in_flight());
        completed = std::max(completed, lane->completed());
      }
    }
    rows.push_back({{"id", id},
                    {"pid", client->credentials.pid},
                    {"uid", client->credentials.uid},
                    {"gid", client->credentials.gid},
                    {"job", client->job},
                    {"connected_s", static_cast<double>(now - client->connected_ns) / 1e9},
                    {"arena_bytes", client->arena_bytes},
                    {"groups", groups},
                    {"ops_in_flight", in_flight},
                    {"ops_completed", completed}});
  }
  return rows;
}

nlohmann::json Conductor::report_peers() const {
  nlohmann::json rows = nlohmann::json::array();
  std::map<std::string, std::string> addresses;
  std::map<std::string, std::int64_t> calendars;  // of peers that have said
  for (const auto& [number, group] : groups_) {
    const auto& setup = group->lanes.front()->setup();
    for (std::size_t i = 0; i < setup.node_ids.size(); ++i) {
      addresses[node_text(setup.node_ids[i])] = group->addresses[i];
    }
  }
  for (const auto& row : links_.rows()) {
    const auto known = addresses.find(row.peer);
    rows.push_back(peer_row(
        row.peer, row.address.empty() && known != addresses.end() ? known->second : row.address, "",
        "control", row.state, row.stats, row.unacked_frames,
        *row.carriage.name == '\0' ? transport_name_ : row.carriage.name));
    rows.back()["transport_note"] = row.carriage.note;
    if (!row.software.empty()) rows.back()["software"] = row.software;
    if (!row.software.empty() && about_) calendars[row.peer] = row.calendar_ns;
  }
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    for (const auto& row : lanes_[lane]->peers()) {
      rows.push_back(peer_row(node_text(row.id), addresses[node_text(row.id)],
                              group_of_link(row.group), std::to_string(lane), row.state, row.stats,
                              row.unacked_frames, row.carrier));
      rows.back()["transport_note"] = row.carrier_note;
      rows.back()["failovers"] = row.failovers;
    }
  }
  add_skews(calendars, about_ ? number_of(about_(), "calendar_ns") : 0, rows);
  return rows;
}

std::size_t Conductor::client_count(const Scope& scope) const {
  return static_cast<std::size_t>(
      std::count_if(clients_.begin(), clients_.end(), [&scope](const auto& one) {
        return scope.has_all() || (one.second->memory && scope.has(one.second->credentials.uid));
      }));
}

std::size_t Conductor::group_count(const Scope& scope) const {
  return static_cast<std::size_t>(
      std::count_if(groups_.begin(), groups_.end(),
                    [&scope](const auto& one) { return scope.has(one.second->users); }));
}

std::size_t Conductor::peer_count(const Scope& scope) const {
  std::set<std::string> nodes;
  if (scope.has_all()) {
    for (const Lane* lane : lanes_) {
      for (const auto& row : lane->peers()) nodes.insert(node_text(row.id));
    }
    return nodes.size();
  }
  for (const auto& [number, group] : groups_) {
    if (group->ended || !scope.has(group->users)) continue;
    for (const wire::NodeId& id : group->lanes.front()->setup().node_ids) {
      if (id != self_) nodes.insert(node_text(id));
    }
  }
  return nodes.size();
}

nlohmann::json Conductor::report_groups(const Scope& scope) const {
  nlohmann::json rows = nlohmann::json::array();
  const std::uint64_t now = clock_.now_ns();
  for (const auto& [uid, set] : joins_) {
    if (!scope.has(set.users())) continue;
    nlohmann::json ranks = nlohmann::json::array();
    for (const auto& [rank, joining] : set.ranks) ranks.push_back(rank);
    rows.push_back(
        {{"uid", uid.substr(0, 8)},
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
                                  {"seconds", 0}}})},
         {"error", ""}});
  }
  for (const auto& [number, group] : groups_) {
    if (!scope.has(group->users)) continue;
    nlohmann::json local = nlohmann::json::array();
    for (const auto& rank : group->ranks) local.push_back(rank.rank);
    std::uint64_t in_flight = 0, completed = 0;
    nlohmann::json waiting = nlohmann::json::array();
    for (const auto& lane : group->lanes) {
      in_flight = std::max<std::uint64_t>(in_flight, lane->in_flight());
      completed = std::max(completed, lane->completed());
      for (const WaitingOp& op : lane->waiting()) {
        const auto tensor = group->tensors.find(op.tensor);
        nlohmann::json ranks = nlohmann::json::array();
        for (std::size_t i = 0; i < std::min<std::size_t>(op.missing, WaitingOp::kShown); ++i) {
          ranks.push_back(op.ranks[i]);
        }
        waiting.push_back(
            {{"tensor", tensor == group->tensors.end() ? "#" + std::to_string(op.sequence)
                                                       : tensor->second.state->name},
             {"op", plan::name_of(op.kind)},
             {"ranks", ranks},
             {"seconds", static_cast<double>(now - op.since_ns) / 1e9}});
      }
    }
    rows.push_back(
        {{"uid", group->uid.substr(0, 8)},
         {"job", group->job},
         {"epoch", group->epoch},
         {"state", group_state(*group)},
         {"size", group->size},
         {"nodes", group->addresses.size()},
         {"local_ranks", local},
         {"lanes", group->lane_count},
         {"ops_completed", completed},
         {"ops_in_flight", in_flight},
         {"waiting", waiting},
         {"error",
          group->ended ? std::string(errc_name(group->end_code)) + ": " + group->end_text : ""}});
  }
  return rows;
}

TensorTotals total(const TensorState& state) noexcept {
  TensorTotals totals;
  double input = 0, residual = 0;
  for (const auto& lane : state.lanes) {
    const auto read = [](const auto& value) { return value.load(std::memory_order_relaxed); };
    // Every lane that has chunks of the tensor sees every op.
    totals.ops = std::max(totals.ops, read(lane.ops));
    totals.bytes_raw += read(lane.bytes_raw);
    totals.bytes_sent += read(lane.bytes_sent);
    totals.encode_ns += read(lane.encode_ns);
    totals.queue_ns += read(lane.queue_ns);
    totals.wire_ns += read(lane.wire_ns);
    totals.decode_ns += read(lane.decode_ns);
    totals.wait_ns += read(lane.wait_ns);
    totals.raw_fallbacks += read(lane.raw_fallbacks);
    totals.resets += read(lane.resets);
    input += read(lane.input_energy);
    residual += read(lane.residual_energy);
  }
  totals.resets += state.resets.load(std::memory_order_relaxed);
  totals.input_energy = input;
  totals.residual_energy = residual;
  return totals;
}

nlohmann::json Conductor::report_tensors(const Scope& scope) const {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [number, group] : groups_) {
    if (!scope.has(group->users)) continue;
    for (const auto& [id, tensor] : group->tensors) {
      const TensorState& state = *tensor.state;
      const TensorTotals totals = total(state);
      rows.push_back({{"group", group->uid.substr(0, 8)},
                      {"name", state.name},
                      {"dtype", dtype_name(state.dtype)},
                      {"count", state.count},
                      {"role", role_name(state.role)},
                      {"recipe", recipe_text(state)},
                      {"ops", totals.ops},
                      {"bytes_raw", totals.bytes_raw},
                      {"bytes_sent", totals.bytes_sent},
                      {"ratio", totals.ratio()},
                      {"residual_ratio", totals.residual_ratio()},
                      {"encode_ms", ms(totals.encode_ns)},
                      {"queue_ms", ms(totals.queue_ns)},
                      {"wire_ms", ms(totals.wire_ns)},
                      {"decode_ms", ms(totals.decode_ns)},
                      {"wait_ms", ms(totals.wait_ns)},
                      {"raw_fallbacks", totals.raw_fallbacks},
                      {"state_bytes", state.state_bytes()},
                      {"resets", totals.resets}});
    }
  }
  return rows;
}

nlohmann::json Conductor::report_counters() const {
  nlohmann::json rows = nlohmann::json::object();
  const auto add = [&rows](const counters::CounterText& text, std::uint64_t value) {
    rows[std::string(text.name)] = {
        {"value", value},
        {"unit", text.unit},
        {"help", text.help},
        {"kind", text.kind == counters::Kind::gauge ? "gauge" : "counter"}};
  };
  for (const auto& row : conductor_counters()) {
    add(row.text, (counters_->*row.value).load(std::memory_order_relaxed));
  }
  for (const auto& row : lane_counters()) {
    std::uint64_t sum = 0;
    nlohmann::json of_lanes = nlohmann::json::array();
    for (const Lane* lane : lanes_) {
      of_lanes.push_back((lane->counters().*row.value).load(std::memory_order_relaxed));
      sum += of_lanes.back().get<std::uint64_t>();
    }
    add(row.text, sum);
    rows[std::string(row.text.name)]["lanes"] = std::move(of_lanes);
  }
  if (tuning_ != nullptr) {
    const auto values = tuning_->counter_values();
    for (std::size_t i = 0; i < values.size(); ++i) add(tuner_counters()[i], values[i]);
  }
  return rows;
}

nlohmann::json Conductor::report_names() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [number, group] : groups_) {
    nlohmann::json tensors = nlohmann::json::object();
    for (const auto& [id, tensor] : group->tensors) {
      tensors[std::to_string(id)] = tensor.state->name;
    }
    rows.push_back({{"number", number},
                    {"uid", group->uid.substr(0, 8)},
                    {"epoch", group->epoch},
                    {"job", group->job},
                    {"node", group->node},
                    {"nodes", group->addresses},
                    {"tensors", std::move(tensors)}});
  }
  return rows;
}

}  // namespace tern::daemon
