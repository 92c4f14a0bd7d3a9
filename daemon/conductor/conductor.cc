#include "daemon/conductor.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "daemon/foreign_json.h"
#include "daemon/service/log.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kIdleNs = 1'000'000'000;
constexpr int kEventsPerRound = 1024;

}  // namespace

Conductor::Conductor(ConductorSettings settings, const Clock& clock, net::Transport& transport,
                     wire::NodeId self, std::vector<Lane*> lanes, ClientPort& port,
                     std::function<void(std::uint32_t)> wake_lane)
    : settings_(std::move(settings)),
      clock_(clock),
      self_(self),
      lanes_(std::move(lanes)),
      port_(port),
      wake_lane_(std::move(wake_lane)),
      transport_name_(transport.name()),
      links_(transport, clock, settings_.link, self, *this),
      coordinator_(*this),
      backlog_(lanes_.size()) {}

Conductor::~Conductor() {
  for (const auto& backlog : backlog_) {
    for (const Command& command : backlog) {
      const std::unique_ptr<net::Incoming> never_adopted(command.incoming);
    }
  }
}

int Conductor::do_work() {
  int work = links_.do_work();
  for (int i = 0; i < 256 && !inbox_.empty(); ++i, ++work) {
    const auto message = std::move(inbox_.front());
    inbox_.pop_front();
    on_control_message(kSelf, message);
  }
  work += drain_events();
  write_due_flights();
  if (tuning_ != nullptr) {
    work += tuning_->do_work();
    weigh_jobs();
  }
  work += flush_commands();
  expire_joins();
  expire_starts();
  expire_silent_clients();
  const std::uint64_t now = clock_.now_ns();
  // At once after a join has failed: a user must not pile up links by joins that go nowhere.
  if (std::exchange(join_failed_, false) || now >= links_due_ns_) {
    links_due_ns_ = now + kIdleNs;
    links_.close_unused(coordinator_links());
    expire_states(now);
  }
  return work;
}

std::set<LinkRef> Conductor::coordinator_links() const {
  std::set<LinkRef> links;
  for (const auto& [uid, set] : joins_) links.insert(set.coordinator);
  for (const auto& [number, group] : groups_) links.insert(group->coordinator);
  return links;
}

std::uint64_t Conductor::next_deadline_ns() const {
  std::uint64_t deadline = std::min(clock_.now_ns() + kIdleNs, links_.next_deadline_ns());
  if (tuning_ != nullptr) deadline = std::min(deadline, tuning_->next_deadline_ns());
  for (const auto& [uid, set] : joins_) {
    for (const auto& [rank, joining] : set.ranks)
      deadline = std::min(deadline, joining.deadline_ns);
  }
  for (const auto& [id, client] : clients_) {
    if (client->memory || client->dropping) continue;
    deadline = std::min(deadline, client->connected_ns + settings_.handshake_timeout_ns);
  }
  for (const auto& [number, group] : groups_) {
    if (!group->started && !group->ended) deadline = std::min(deadline, group->start_deadline_ns);
  }
  for (const auto& backlog : backlog_) {
    if (!backlog.empty()) deadline = clock_.now_ns() + 1'000'000;
  }
  if (!inbox_.empty()) deadline = clock_.now_ns();
  return deadline;
}

// ---- Lanes
// ----------------------------------------------------------------------------------------

void Conductor::command(std::uint32_t lane, const Command& command) {
  backlog_[lane].push_back(command);
  flush_commands();
}

void Conductor::command_all(const MemberGroup& group, Command command) {
  for (std::uint32_t lane = 0; lane < group.lane_count; ++lane) {
    command.group = group.lanes[lane].get();
    backlog_[lane].push_back(command);
  }
  flush_commands();
}

int Conductor::flush_commands() {
  int sent = 0;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    auto& backlog = backlog_[lane];
    const int before = sent;
    while (!backlog.empty() && lanes_[lane]->commands().push(backlog.front())) {
      backlog.pop_front();
      ++sent;
    }
    if (sent != before) wake_lane_(lane);
  }
  return sent;
}

int Conductor::drain_events() {
  int work = 0;
  for (Lane* lane : lanes_) {
    Event event;
    for (int i = 0; i < kEventsPerRound && lane->events().pop(event); ++i) {
      on_event(event);
      ++work;
    }
  }
  return work;
}

void Conductor::on_event(const Event& event) {
  if (event.kind == EventKind::client_dropped) return client_dropped(event.client);
  if (event.kind == EventKind::entry_refused) return on_entry_refused(event);
  if (event.kind == EventKind::peer_refused) return log_peer(node_text(event.peer), event.text);
  if (event.kind == EventKind::carrier_changed) {
    const std::string peer = node_text(event.peer);
    return log_about({.peer = peer}, spdlog::level::info, "the daemon {}: {}", peer, event.text);
  }
  if (event.kind == EventKind::client_misbehaved) {
    const auto found = clients_.find(event.client->id);
    if (found == clients_.end()) return;
    log_user(*found->second, std::string("is disconnected: ") + event.text);
    ++counters_->bad_packets;
    return drop_client(*found->second, event.text);
  }
  const auto owner = group_of_lane_group_.find(event.group);
  if (owner == group_of_lane_group_.end()) return;
  MemberGroup& group = *owner->second;
  switch (event.kind) {
    case EventKind::group_ready:
      if (++group.lanes_ready == group.lane_count && !group.ended) {
        send(group.coordinator, {{"t", "ready"}, {"uid", group.uid}, {"epoch", group.epoch}});
      }
      break;
    case EventKind::group_removed:
      if (++group.lanes_removed < group.lane_count) break;
      if (group.flights_due) write_flights(group);
      for (auto& [id, tensor] : group.tensors) {
        if (tuning_ != nullptr) tuning_->end(*tensor.state);
        keep_state(group, tensor);
      }
      if (tuning_ != nullptr) tuning_->group_ended(group);
      for (const auto& lane : group.lanes) group_of_lane_group_.erase(lane.get());
      groups_.erase(group.number);
      break;
    case EventKind::rank_released: {
      MemberRank& rank = group.ranks[event.number];
      if (++rank.released == group.lane_count) rank_released(group, rank);
      break;
    }
    case EventKind::tensor_dropped: {
      const auto tensor = group.tensors.find(event.tensor->id);
      if (tensor == group.tensors.end() || ++tensor->second.dropped < group.lane_count) break;
      if (tuning_ != nullptr) tuning_->end(*tensor->second.state);
      keep_state(group, tensor->second);
      group.tensors.erase(tensor);
      break;
    }
    case EventKind::state_reset:
      counters_->state_resets += event.number;
      break;
    case EventKind::link_lost: {
      const std::string peer = node_name(group, static_cast<std::uint32_t>(event.number));
      const LogScope scope({.peer = peer});
      if (event.code == Errc::permission_denied) ++counters_->peers_not_trusted;
      end_group(group, event.code == Errc::shutting_down ? Errc::peer_lost : event.code,
                "lost " + peer + ": " + event.text, true);
      break;
    }
    case EventKind::op_failed: {
      if (group.removing) break;  // its ops have ended, and a lane may have let it go already
      Command command;
      command.kind = CommandKind::fail_op;
      command.code = event.code;
      command.number = event.number;
      command.tensor_id = event.tensor_id;
      command.sequence = event.sequence;
      std::memcpy(command.text, event.text, sizeof(command.text));
      for (std::uint32_t lane = 0; lane < group.lane_count; ++lane) {
        if (lane == event.lane || (event.lanes >> lane & 1) == 0) continue;
        command.group = group.lanes[lane].get();
        backlog_[lane].push_back(command);
      }
      flush_commands();
      break;
    }
    case EventKind::state_moved:
      on_state_moved(event);
      break;
    case EventKind::op_record:
      record_flight(group, event);
      if (const TensorState* state = tensor_of(group, event.record.tensor);
          state != nullptr && tuning_ != nullptr && event.code == Errc::ok) {
        tuning_->on_op(group, *state, event.record);
      }
      break;
    case EventKind::choice_used:
      if (const TensorState* state = tensor_of(group, event.tensor_id)) {
        tuning_->on_choice_used(group, *state, event.lane, event.sequence,
                                ChoiceUsed::unpacked(event.number));
      }
      break;
    case EventKind::chunk_choice:
      if (const TensorState* state = tensor_of(group, event.tensor_id)) {
        tuning_->on_chunk_choice(group, *state, event.lane, event.sequence, event.number);
      }
      break;
    case EventKind::client_dropped:
    case EventKind::client_misbehaved:
    case EventKind::entry_refused:
    case EventKind::peer_refused:
    case EventKind::carrier_changed:
      break;
  }
}

const TensorState* Conductor::tensor_of(const MemberGroup& group, std::uint64_t id) const {
  const auto found = group.tensors.find(id);
  return found == group.tensors.end() ? nullptr : found->second.state.get();
}

bool Conductor::idle() const {
  for (const auto& [number, group] : groups_) {
    for (const auto& lane : group->lanes) {
      if (lane->in_flight() > 0) return false;
    }
  }
  return true;
}

// ---- The flight recorder
// --------------------------------------------------------------------------

void Conductor::record_flight(MemberGroup& group, const Event& event) {
  if (group.flights.size() == MemberGroup::kFlights) group.flights.pop_front();
  group.flights.push_back({event.record, event.code, event.text});
  if (event.code == Errc::ok) return;
  const auto name = [&]() -> std::string {
    const auto tensor = group.tensors.find(event.record.tensor);
    return tensor == group.tensors.end() ? "(anonymous)" : tensor->second.state->name;
  }();
  log_about({.job = group.job, .group = short_uid(group.uid), .tensor = name}, spdlog::level::warn,
            "group {} epoch {}: op {} of {} failed: {}: {}", short_uid(group.uid), group.epoch,
            event.record.sequence, name, errc_name(event.code), event.text);
  group.flights_due = true;
}

// A storm of failures must not become one of files.
void Conductor::write_due_flights() {
  const std::uint64_t now = clock_.now_ns();
  for (auto& [number, group] : groups_) {
    if (!group->flights_due || now - group->flights_written_ns < kIdleNs) continue;
    group->flights_written_ns = now;
    write_flights(*group);
  }
}

void Conductor::write_flights(MemberGroup& group) const {
  group.flights_due = false;
  if (settings_.flight_directory.empty() || group.flights.empty()) return;
  nlohmann::json ops = nlohmann::json::array();
  const std::uint64_t now = clock_.now_ns();
  for (const auto& flight : group.flights) {
    const auto tensor = group.tensors.find(flight.record.tensor);
    const OpRecord& record = flight.record;
    ops.push_back(
        {{"tensor", tensor == group.tensors.end() ? "" : tensor->second.state->name},
         {"op", record.sequence},
         {"kind", record.kind == 1   ? "all_reduce"
                  : record.kind == 2 ? "broadcast"
                                     : "barrier"},
         {"dtype", dtype_name(static_cast<DType>(record.dtype))},
         {"reduction", reduction_name(static_cast<Reduction>(record.reduction))},
         {"count", record.count},
         {"lane", record.lane},
         {"lossy", record.lossy != 0},
         {"eager", record.eager != 0},
         {"bytes_sent", record.bytes_sent},
         {"ended_us_ago", (now - record.ended_ns) / 1000},
         {"wait_us", record.started_ns == 0 ? 0 : (record.started_ns - record.submitted_ns) / 1000},
         {"total_us", (record.ended_ns - record.submitted_ns) / 1000},
         {"status", errc_name(flight.code)},
         {"text", flight.text}});
  }
  const nlohmann::json file = {{"group", group.uid.substr(0, 8)},
                               {"job", group.job},
                               {"epoch", group.epoch},
                               {"error", group.end_text},
                               {"ops", std::move(ops)}};
  const std::string path = settings_.flight_directory + "/flight-" + group.uid.substr(0, 8) + "-" +
                           std::to_string(group.epoch) + ".json";
  std::ofstream out(path + ".new");
  out << json_text(file, 1) << "\n";
  out.close();
  if (!out || std::rename((path + ".new").c_str(), path.c_str()) != 0) {
    log_about(log_fields(group), spdlog::level::warn, "cannot write the flight record {}: {}", path,
              std::strerror(errno));
    std::remove((path + ".new").c_str());
  }
}

// ---- Links
// ----------------------------------------------------------------------------------------

void Conductor::send(LinkRef to, const nlohmann::json& message) {
  if (to == kSelf) {
    inbox_.push_back(message);
  } else {
    links_.send(to, message);
  }
}

void Conductor::on_control_message(LinkRef from, const nlohmann::json& message) {
  if (text_of(message, "t") == "about") return links_.on_about(from, message);
  bool understood = coordinator_.on_message(from, message);
  if (!understood) understood = on_member_message(from, message);
  if (!understood) {
    ++counters_->bad_control_messages;
    log_peer(links_.name_of(from), "a control message that nobody understands was ignored");
  }
}

void Conductor::on_control_link_lost(LinkRef link, Errc reason, bool worked,
                                     const std::string& why) {
  const bool is_distrust = reason == Errc::permission_denied;
  const bool is_refusal = is_distrust || reason == Errc::version_mismatch;
  if (is_distrust) {
    ++counters_->peers_not_trusted;
    const std::string peer = links_.name_of(link);
    log_about({.peer = peer}, spdlog::level::warn, "no link to a peer: {}", why);
  }
  coordinator_.on_link_lost(link, why);
  for (auto& [uid, set] : joins_) {
    if (set.coordinator != link) continue;
    refuse_late_joins(set);
    if (worked) {
      if (!set.ranks.empty()) ask_again(set);
      continue;
    }
    std::vector<std::uint32_t> ranks;
    for (const auto& [rank, joining] : set.ranks) ranks.push_back(rank);
    for (const auto rank : ranks) {
      refuse_join(set, rank, is_refusal ? reason : Errc::unreachable,
                  "the group's coordinator at " + set.id.host + ":" + std::to_string(set.id.port) +
                      (is_refusal ? " takes no link: " : " cannot be reached: ") + why);
    }
  }
  std::erase_if(joins_, [](const auto& one) { return one.second.ranks.empty(); });
  std::vector<MemberGroup*> affected;
  for (auto& [number, group] : groups_) {
    if (group->coordinator == link) affected.push_back(group.get());
  }
  for (MemberGroup* group : affected) {
    end_group(*group, Errc::peer_lost,
              "lost the group's coordinator at " + group->id.host + ":" +
                  std::to_string(group->id.port) + ": " + why,
              false);
    remove_if_unused(*group);
  }
}

void Conductor::on_incoming(std::unique_ptr<net::Incoming> incoming, const wire::FrameHeader&,
                            const wire::HelloBody& hello) {
  if (hello.lane == wire::kConductorLane) {
    if (!links_.adopt(std::move(incoming), hello)) refuse_hello(hello, "there are too many");
  } else if (hello.lane < lanes_.size()) {
    Command adopt;
    adopt.kind = CommandKind::adopt_connection;
    adopt.incoming = incoming.release();
    adopt.hello = hello;
    command(hello.lane, adopt);
  } else {
    // Closed: a group never uses more lanes than its nodes have.
    refuse_hello(hello, "there is no lane " + std::to_string(hello.lane));
  }
}

void Conductor::say_goodbye() {
  links_.say_goodbye();
  Command goodbye;
  goodbye.kind = CommandKind::goodbye;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) command(lane, goodbye);
}

}  // namespace tern::daemon
