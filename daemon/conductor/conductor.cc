#include "daemon/conductor/conductor.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "daemon/control/foreign_json.h"
#include "daemon/service/log.h"
#include "plan/plans.h"

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
      if (const auto* adopt = std::get_if<command::AdoptConnection>(&command)) {
        const std::unique_ptr<net::Incoming> never_adopted(adopt->incoming);
      }
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

// ---- Lanes --------------------------------------------------------------------------------------

void Conductor::command(std::uint32_t lane, const Command& command) {
  backlog_[lane].push_back(command);
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
      std::visit([&](const auto& what) { on(event.lane, what); }, event.what);
      ++work;
    }
  }
  return work;
}

// ---- What lanes tell ----------------------------------------------------------------------------

void Conductor::on(std::uint32_t, const event::ClientDropped& event) {
  client_dropped(event.client);
}

void Conductor::on(std::uint32_t, const event::ClientMisbehaved& event) {
  const auto found = clients_.find(event.client->id);
  if (found == clients_.end()) return;
  log_user(*found->second, std::string("is disconnected: ") + event.text.c_str());
  ++counters_->bad_packets;
  drop_client(*found->second, event.text.c_str());
}

void Conductor::on(std::uint32_t, const event::PeerRefused& event) {
  log_peer(node_text(event.peer), event.text.c_str());
}

void Conductor::on(std::uint32_t, const event::CarrierChanged& event) {
  const std::string peer = node_text(event.peer);
  log_about({.peer = peer}, spdlog::level::info, "the daemon {}: {}", peer, event.text.c_str());
}

// Null: the group is gone.
MemberGroup* Conductor::group_of(const LaneGroup* lane_group) {
  const auto owner = group_of_lane_group_.find(lane_group);
  return owner == group_of_lane_group_.end() ? nullptr : owner->second;
}

void Conductor::on(std::uint32_t, const event::GroupReady& event) {
  MemberGroup* const group = group_of(event.group);
  if (group != nullptr && ++group->lanes_ready == group->lane_count && !group->ended) {
    send(group->coordinator, {{"t", "ready"}, {"uid", group->uid}, {"epoch", group->epoch}});
  }
}

void Conductor::on(std::uint32_t, const event::GroupRemoved& event) {
  MemberGroup* const group = group_of(event.group);
  if (group == nullptr || ++group->lanes_removed < group->lane_count) return;
  if (group->flights_due) write_flights(*group);
  for (auto& [id, tensor] : group->tensors) {
    if (tuning_ != nullptr) tuning_->end(*tensor.state);
    keep_state(*group, tensor);
  }
  if (tuning_ != nullptr) tuning_->group_ended(*group);
  for (const auto& lane : group->lanes) group_of_lane_group_.erase(lane.get());
  groups_.erase(group->number);
}

void Conductor::on(std::uint32_t, const event::RankReleased& event) {
  MemberGroup* const group = group_of(event.group);
  if (group == nullptr) return;
  MemberRank& rank = group->ranks[event.local_rank];
  if (++rank.released == group->lane_count) rank_released(*group, rank);
}

void Conductor::on(std::uint32_t, const event::TensorDropped& event) {
  MemberGroup* const group = group_of(event.group);
  if (group == nullptr) return;
  const auto tensor = group->tensors.find(event.tensor->id);
  if (tensor == group->tensors.end() || ++tensor->second.dropped < group->lane_count) return;
  if (tuning_ != nullptr) tuning_->end(*tensor->second.state);
  keep_state(*group, tensor->second);
  group->tensors.erase(tensor);
}

void Conductor::on(std::uint32_t, const event::StateReset& event) {
  if (group_of(event.group) != nullptr) counters_->state_resets += event.resets;
}

void Conductor::on(std::uint32_t, const event::LinkLost& event) {
  MemberGroup* const group = group_of(event.group);
  if (group == nullptr) return;
  const std::string peer = node_name(*group, event.node);
  const LogScope scope({.peer = peer});
  if (event.code == Errc::permission_denied) ++counters_->peers_not_trusted;
  end_group(*group, event.code == Errc::shutting_down ? Errc::peer_lost : event.code,
            "lost " + peer + ": " + event.text.c_str(), true);
}

void Conductor::on(std::uint32_t lane, const event::OpFailed& event) {
  const MemberGroup* const group = group_of(event.group);
  // A group that is being removed has no ops, and a lane may have let it go already.
  if (group == nullptr || group->removing) return;
  for (std::uint32_t other = 0; other < group->lane_count; ++other) {
    if (other == lane || (event.lanes >> other & 1) == 0) continue;
    backlog_[other].push_back(command::FailOp{group->lanes[other].get(), event.tensor,
                                              event.sequence, event.code, event.about_rank,
                                              event.text});
  }
  flush_commands();
}

void Conductor::on(std::uint32_t, const event::OpEnded& event) {
  MemberGroup* const group = group_of(event.group);
  if (group == nullptr) return;
  record_flight(*group, event);
  const TensorState* const state = tensor_of(*group, event.record.tensor);
  if (state != nullptr && tuning_ != nullptr && event.code == Errc::ok) {
    tuning_->on_op(*group, *state, event.record);
  }
}

void Conductor::on(std::uint32_t lane, const event::ChoiceInUse& event) {
  MemberGroup* const group = group_of(event.group);
  const TensorState* const state = group != nullptr ? tensor_of(*group, event.tensor) : nullptr;
  if (state != nullptr) tuning_->on_choice_used(*group, *state, lane, event);
}

void Conductor::on(std::uint32_t lane, const event::ChunkChoice& event) {
  MemberGroup* const group = group_of(event.group);
  const TensorState* const state = group != nullptr ? tensor_of(*group, event.tensor) : nullptr;
  if (state != nullptr) tuning_->on_chunk_choice(*group, *state, lane, event);
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

// ---- The flight recorder ------------------------------------------------------------------------

void Conductor::record_flight(MemberGroup& group, const event::OpEnded& event) {
  if (group.flights.size() == MemberGroup::kFlights) group.flights.pop_front();
  group.flights.push_back({event.record, event.code, event.text.c_str()});
  if (event.code == Errc::ok) return;
  const auto name = [&]() -> std::string {
    const auto tensor = group.tensors.find(event.record.tensor);
    return tensor == group.tensors.end() ? "(anonymous)" : tensor->second.state->name;
  }();
  log_about({.job = group.job, .group = short_uid(group.uid), .tensor = name}, spdlog::level::warn,
            "group {} epoch {}: op {} of {} failed: {}: {}", short_uid(group.uid), group.epoch,
            event.record.sequence, name, errc_name(event.code), event.text.c_str());
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
         {"kind", plan::name_of(record.kind)},
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

// ---- Links --------------------------------------------------------------------------------------

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
    command(hello.lane, command::AdoptConnection{incoming.release(), hello});
  } else {
    // Closed: a group never uses more lanes than its nodes have.
    refuse_hello(hello, "there is no lane " + std::to_string(hello.lane));
  }
}

void Conductor::say_goodbye() {
  links_.say_goodbye();
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) command(lane, command::Goodbye{});
}

}  // namespace tern::daemon
