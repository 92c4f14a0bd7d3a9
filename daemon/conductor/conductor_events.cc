// What lanes tell the conductor.

#include <spdlog/spdlog.h>

#include <variant>

#include "base/time_slice.h"
#include "daemon/conductor/conductor.h"
#include "daemon/service/log.h"

namespace tern::daemon {
namespace {

// Of all lanes together: an op that has ended takes a few microseconds where the tuner looks at it.
constexpr std::size_t kEventsPerRound = 1024;

}  // namespace

// In each turn another lane is the first, and every lane's oldest event is taken.
int Conductor::drain_events() {
  const TimeSlice slice(clock_, 2 * kSliceNs);
  const std::size_t lanes = lanes_.size();
  const std::size_t first = first_lane_++;
  int work = 0;
  for (std::size_t i = 0; i < lanes; ++i) {
    Event event;
    Lane& lane = *lanes_[(first + i) % lanes];
    for (std::size_t j = 0; j < kEventsPerRound / lanes && lane.events().pop(event); ++j) {
      std::visit(
          [&](const auto& what) {
            turns_.step(what.kHandler);
            if constexpr (requires { regions_.on(what); }) {
              regions_.on(what);
            } else {
              on(event.lane, what);
            }
          },
          event.what);
      ++work;
      if (slice.is_over()) break;
    }
  }
  return work;
}

// ---- Clients and peers

void Conductor::on(std::uint32_t, const event::ClientDropped& event) {
  clients_.on_dropped(*event.client);
}

void Conductor::on(std::uint32_t, const event::ClientMisbehaved& event) {
  Client* const client = clients_.find(event.client->id);
  if (client == nullptr) return;
  refusals_.log_end(*client, event.text.c_str());
  ++counters_->bad_packets;
  drop_client(*client, event.text.c_str());
}

void Conductor::on(std::uint32_t, const event::EntryRefused& event) {
  const Client* const client = clients_.find(event.client->id);
  if (client != nullptr) refusals_.entry(*client, event.code, event.text.c_str());
}

void Conductor::on(std::uint32_t, const event::PeerRefused& event) {
  refusals_.log_peer(node_text(event.peer), event.text.c_str());
}

void Conductor::on(std::uint32_t, const event::CarrierChanged& event) {
  const std::string peer = node_text(event.peer);
  log_about({.peer = peer}, spdlog::level::info, "the daemon {}: {}", peer, event.text.c_str());
}

// ---- Groups. Of one that is forgotten there is nothing to tell.

void Conductor::on(std::uint32_t, const event::GroupReady& event) {
  MemberGroup* const group = groups_.of_lane(event.group);
  if (group != nullptr) groups_.on_ready(*group);
}

void Conductor::on(std::uint32_t, const event::GroupRemoved& event) {
  MemberGroup* const group = groups_.of_lane(event.group);
  if (group == nullptr || !groups_.on_lane_removed(*group)) return;
  flights_.close(*group);
  tensors_.on_group_removed(*group);
}

void Conductor::on(std::uint32_t, const event::RankReleased& event) {
  MemberGroup* const group = groups_.of_lane(event.group);
  if (group == nullptr) return;
  MemberRank& rank = group->ranks[event.local_rank];
  if (!groups_.on_lane_released(*group, rank)) return;
  tensors_.release_all(*group, rank);
  groups_.tell_left(*group, rank);
  Client* const client = clients_.find(rank.client);
  if (client != nullptr && client->goodbye && !groups_.has_member(client->id)) {
    drop_client(*client, "it disconnected");
  }
  groups_.remove_if_unused(*group);
}

void Conductor::on(std::uint32_t, const event::LinkLost& event) {
  MemberGroup* const group = groups_.of_lane(event.group);
  if (group == nullptr) return;
  const std::string peer = group->node_name(event.node);
  const LogScope scope({.peer = peer});
  if (event.code == Errc::permission_denied) ++counters_->peers_not_trusted;
  groups_.end(*group, event.code == Errc::shutting_down ? Errc::peer_lost : event.code,
              "lost " + peer + ": " + event.text.c_str(), true);
}

// ---- Ops and tensors

void Conductor::on(std::uint32_t lane, const event::OpFailed& event) {
  const MemberGroup* const group = groups_.of_lane(event.group);
  // A group that is being removed has no ops, and a lane may have let it go already.
  if (group == nullptr || group->phase == MemberGroup::Phase::removing) return;
  commands_.send_fail(
      *group, event.lanes & ~(1u << lane),
      {nullptr, event.tensor, event.sequence, event.code, event.about_rank, event.text});
}

void Conductor::on(std::uint32_t, const event::OpEnded& event) {
  MemberGroup* const group = groups_.of_lane(event.group);
  if (group == nullptr) return;
  flights_.record(*group, event);
  const TensorState* const state = group->tensor(event.record.tensor);
  if (state != nullptr && tuning_ != nullptr && event.code == Errc::ok) {
    tuning_->on_op(*group, *state, event.record);
  }
}

void Conductor::on(std::uint32_t lane, const event::ChoiceInUse& event) {
  const MemberGroup* const group = groups_.of_lane(event.group);
  const TensorState* const state = group != nullptr ? group->tensor(event.tensor) : nullptr;
  if (state != nullptr) tuning_->on_choice_used(*group, *state, lane, event);
}

void Conductor::on(std::uint32_t lane, const event::ChunkChoice& event) {
  const MemberGroup* const group = groups_.of_lane(event.group);
  const TensorState* const state = group != nullptr ? group->tensor(event.tensor) : nullptr;
  if (state != nullptr) tuning_->on_chunk_choice(*group, *state, lane, event);
}

void Conductor::on(std::uint32_t, const event::TensorDropped& event) {
  MemberGroup* const group = groups_.of_lane(event.group);
  if (group != nullptr) tensors_.on_dropped(*group, event.tensor->id, event.release);
}

void Conductor::on(std::uint32_t, const event::StateReset& event) {
  if (groups_.of_lane(event.group) != nullptr) counters_->state_resets += event.resets;
}

void Conductor::on(std::uint32_t, const event::StateMoved& event) { moves_.on_moved(event); }

}  // namespace tern::daemon
