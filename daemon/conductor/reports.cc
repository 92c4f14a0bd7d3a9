// What the operator sees: docs/control-protocol.md describes every field.

#include "daemon/conductor/reports.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

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

// Null before there is one.
nlohmann::json kind_text(std::uint16_t kind) {
  if (kind == 0) return nullptr;
  return plan::name_of(kind);
}

// Null where nothing was measured.
nlohmann::json us(std::uint64_t ns, std::uint64_t count) {
  if (count == 0) return nullptr;
  return static_cast<double>(ns) / static_cast<double>(count) / 1e3;
}

// One link to a peer, of the conductor or of a lane.
struct PeerLink {
  std::string node, address, group, lane;
  net::LinkState state = net::LinkState::connecting;
  const net::LinkStats& stats;
  std::uint64_t unacked_frames = 0;
  std::string transport, transport_note;
  std::uint64_t failovers = 0;
};

nlohmann::json peer_row(const PeerLink& link) {
  const net::LinkStats& stats = link.stats;
  const bool known = stats.clock_error_ns != net::LinkStats::kUnknown;
  return {{"node_id", link.node},
          {"address", link.address},
          {"group", link.group},
          {"lane", link.lane},
          {"state", state_name(link.state)},
          {"round_trip_us", us(stats.round_trip_ns, stats.round_trip_ns > 0 ? 1 : 0)},
          {"bytes_sent", stats.bytes_sent},
          {"bytes_received", stats.bytes_received},
          {"frames_sent", stats.frames_sent},
          {"frames_received", stats.frames_received},
          {"resumes", stats.resumes},
          {"replayed_frames", stats.replayed_frames},
          {"unacked_frames", link.unacked_frames},
          {"transport", link.transport},
          {"transport_note", link.transport_note},
          {"failovers", link.failovers},
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

double ms(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }

nlohmann::json device_row(const ReportedDevice& device, std::uint64_t now_ns) {
  const shm::DeviceReportPacket& said = device.said;
  return {{"device", said.device},
          {"reported_s", static_cast<double>(now_ns - device.heard_ns) / 1e9},
          {"device_bytes", said.device_bytes},
          {"pinned_bytes", said.pinned_bytes},
          {"pinning_failures", said.pinning_failures},
          {"pinning_problem", said.pinning_problem},
          {"ops", said.operations},
          {"ops_failed", said.failures},
          {"encodes", said.encodes},
          {"encode_us", us(said.encode_ns, said.encodes)},
          {"last_encode_us", us(said.last_encode_ns, said.encodes == 0 ? 0 : 1)},
          {"decodes", said.decodes},
          {"decode_us", us(said.decode_ns, said.decodes)},
          {"last_decode_us", us(said.last_decode_ns, said.decodes == 0 ? 0 : 1)}};
}

}  // namespace

nlohmann::json Reports::clients(const Scope& scope) const {
  nlohmann::json rows = nlohmann::json::array();
  const std::uint64_t now = of_.outlets.clock.now_ns();
  for (const auto& [id, client] : of_.clients.all()) {
    if (!client->memory || !scope.has(client->credentials.uid)) continue;
    std::uint64_t groups = 0;
    Progress progress;
    for (const auto& [number, group] : of_.groups.all()) {
      if (group->rank_of_client(id) == nullptr) continue;
      ++groups;
      progress.add(*group);
    }
    nlohmann::json devices = nlohmann::json::array();
    for (const auto& [number, device] : client->devices) devices.push_back(device_row(device, now));
    rows.push_back({{"id", id},
                    {"pid", client->credentials.pid},
                    {"uid", client->credentials.uid},
                    {"gid", client->credentials.gid},
                    {"job", client->job},
                    {"connected_s", static_cast<double>(now - client->connected_ns) / 1e9},
                    {"arena_bytes", client->arena_bytes},
                    {"regions", client->regions.size()},
                    {"region_bytes", client->region_bytes},
                    {"groups", groups},
                    {"ops_in_flight", progress.in_flight},
                    {"ops_completed", progress.completed},
                    {"devices", std::move(devices)}});
  }
  return rows;
}

nlohmann::json Reports::peers() const {
  nlohmann::json rows = nlohmann::json::array();
  std::map<std::string, std::string> addresses;
  std::map<std::string, std::int64_t> calendars;  // of peers that have said
  for (const auto& [number, group] : of_.groups.all()) {
    const auto& setup = group->lanes.front()->setup();
    for (std::size_t i = 0; i < setup.node_ids.size(); ++i) {
      addresses[node_text(setup.node_ids[i])] = group->addresses[i];
    }
  }
  for (const auto& row : of_.links.rows()) {
    const auto known = addresses.find(row.peer);
    const bool has_address = !row.address.empty() || known == addresses.end();
    rows.push_back(
        peer_row({.node = row.peer,
                  .address = has_address ? row.address : known->second,
                  .group = "",
                  .lane = "control",
                  .state = row.state,
                  .stats = row.stats,
                  .unacked_frames = row.unacked_frames,
                  .transport = *row.carriage.name == '\0' ? transport_name_ : row.carriage.name,
                  .transport_note = row.carriage.note}));
    if (!row.software.empty()) rows.back()["software"] = row.software;
    if (!row.software.empty() && about_) calendars[row.peer] = row.calendar_ns;
  }
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    for (const auto& row : lanes_[lane]->peers()) {
      rows.push_back(peer_row({.node = node_text(row.id),
                               .address = addresses[node_text(row.id)],
                               .group = group_of_link(row.group),
                               .lane = std::to_string(lane),
                               .state = row.state,
                               .stats = row.stats,
                               .unacked_frames = row.unacked_frames,
                               .transport = row.carrier,
                               .transport_note = row.carrier_note,
                               .failovers = row.failovers}));
    }
  }
  add_skews(calendars, about_ ? number_of(about_(), "calendar_ns") : 0, rows);
  return rows;
}

std::size_t Reports::client_count(const Scope& scope) const {
  return static_cast<std::size_t>(
      std::count_if(of_.clients.all().begin(), of_.clients.all().end(), [&scope](const auto& one) {
        return scope.has_all() || (one.second->memory && scope.has(one.second->credentials.uid));
      }));
}

std::size_t Reports::group_count(const Scope& scope) const {
  return static_cast<std::size_t>(
      std::count_if(of_.groups.all().begin(), of_.groups.all().end(),
                    [&scope](const auto& one) { return scope.has(one.second->users); }));
}

std::size_t Reports::peer_count(const Scope& scope) const {
  std::set<std::string> nodes;
  if (scope.has_all()) {
    for (const Lane* lane : lanes_) {
      for (const auto& row : lane->peers()) nodes.insert(node_text(row.id));
    }
    return nodes.size();
  }
  for (const auto& [number, group] : of_.groups.all()) {
    if (group->has_ended() || !scope.has(group->users)) continue;
    for (const wire::NodeId& id : group->lanes.front()->setup().node_ids) {
      if (id != self()) nodes.insert(node_text(id));
    }
  }
  return nodes.size();
}

nlohmann::json Reports::tensor_row(const MemberGroup& group, const TensorState& state) const {
  const TensorTotals totals = total(state);
  return {{"group", group.uid.substr(0, 8)},
          {"group_number", group.number},
          {"name", state.name},
          {"dtype", dtype_name(state.dtype)},
          {"count", state.count},
          {"role", role_name(state.role)},
          {"recipe", of_.tensors.recipe_text(state)},
          {"client_blocks", state.slots.has_value()},
          {"operation", kind_text(totals.kind)},
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
          {"state_of", kind_text(state.memory_use.kind())},
          {"resets", totals.resets}};
}

RowSource Reports::tensors(const Scope& scope) const {
  struct Last {
    std::uint64_t group = 0;
    std::optional<std::uint64_t> tensor;  // none: of the group nothing is listed yet
  };
  return [this, scope, last = Last()](nlohmann::json& rows) mutable {
    const auto& groups = of_.groups.all();
    auto at = groups.lower_bound(last.group);
    std::size_t passed = 0;
    while (at != groups.end() && rows.size() < kRowsOfCall && passed < kPassedOfCall) {
      const MemberGroup& group = *at->second;
      if (std::exchange(last.group, at->first) != at->first) last.tensor.reset();
      const auto& tensors = group.tensors.all();
      auto tensor = !scope.has(group.users) ? tensors.end()
                    : last.tensor           ? tensors.upper_bound(*last.tensor)
                                            : tensors.begin();
      for (; tensor != tensors.end() && rows.size() < kRowsOfCall; ++tensor) {
        rows.push_back(tensor_row(group, *tensor->second.state));
        last.tensor = tensor->first;
      }
      if (tensor != tensors.end()) return true;
      ++passed;
      last = {at->first + 1, std::nullopt};
      ++at;
    }
    return at != groups.end();
  };
}

nlohmann::json Reports::counters() const {
  nlohmann::json rows = nlohmann::json::object();
  const auto add = [&rows](const counters::CounterText& text, std::uint64_t value) {
    rows[std::string(text.name)] = {
        {"value", value},
        {"unit", text.unit},
        {"help", text.help},
        {"kind", text.kind == counters::Kind::gauge ? "gauge" : "counter"}};
  };
  for (const auto& row : conductor_counters()) {
    add(row.text, ((*of_.outlets.counters).*row.value).load(std::memory_order_relaxed));
  }
  const auto add_lanes = [&](const counters::CounterText& text, auto value_of) {
    std::uint64_t sum = 0;
    nlohmann::json of_lanes = nlohmann::json::array();
    for (const Lane* lane : lanes_) {
      const std::uint64_t value = value_of(*lane);
      of_lanes.push_back(value);
      sum += value;
    }
    add(text, sum);
    rows[std::string(text.name)]["lanes"] = std::move(of_lanes);
  };
  for (const auto& row : lane_counters()) {
    add_lanes(row.text, [&row](const Lane& lane) {
      return (lane.counters().*row.value).load(std::memory_order_relaxed);
    });
  }
  for (std::size_t i = 0; i < kind_counters().size(); ++i) {
    const std::uint16_t kind = plan::known()[i]->number;
    add_lanes(kind_counters()[i],
              [kind](const Lane& lane) { return lane.kinds().succeeded(kind); });
  }
  if (of_.tuning != nullptr) {
    const auto values = of_.tuning->counter_values();
    for (std::size_t i = 0; i < values.size(); ++i) add(tuner_counters()[i], values[i]);
  }
  rows["conductor_longest_turn_ns"]["step"] = of_.turns.longest().step;
  nlohmann::json& of_lanes = rows["lane_longest_turn_ns"];
  for (Lane* lane : lanes_) {
    const TurnMeter::Turn longest = lane->turns().longest();
    of_lanes["lanes"].push_back(longest.ns);
    of_lanes["steps"].push_back(longest.step);
    of_lanes["value"] = std::max(of_lanes["value"].get<std::uint64_t>(), longest.ns);
  }
  return rows;
}

nlohmann::json Reports::names() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [number, group] : of_.groups.all()) {
    nlohmann::json tensors = nlohmann::json::object();
    for (const auto& [id, tensor] : group->tensors.all()) {
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

nlohmann::json Reports::devices(std::uint64_t since_ns) const {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [id, client] : of_.clients.all()) {
    for (const auto& [number, device] : client->devices) {
      if (device.heard_ns < since_ns) continue;
      const shm::DeviceReportPacket& said = device.said;
      rows.push_back({{"at_ns", device.heard_ns},
                      {"client", id},
                      {"job", client->job},
                      {"device", number},
                      {"device_bytes", said.device_bytes},
                      {"pinned_bytes", said.pinned_bytes},
                      {"encodes", said.encodes},
                      {"encode_ns", said.encode_ns},
                      {"decodes", said.decodes},
                      {"decode_ns", said.decode_ns}});
    }
  }
  return rows;
}

}  // namespace tern::daemon
