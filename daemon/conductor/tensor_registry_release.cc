// The end of declarations: ranks release tensors or leave, lanes let go, groups are forgotten.

#include <memory>
#include <utility>

#include "daemon/conductor/tensor_registry.h"

namespace tern::daemon {

void TensorRegistry::drop(MemberGroup& group, std::uint64_t id) {
  if (group.phase == MemberGroup::Phase::removing)
    return;  // it goes with the group, which a lane may have let go already
  DeclaredTensor& tensor = group.tensors.at(id);
  const command::DropTensor command{nullptr, tensor.state.get(), ++tensor.releases};
  outlets_.lanes.send_to_group(group, command);
}

void TensorRegistry::release(const Client& client, const shm::TensorReleasePacket& packet) {
  MemberGroup* const group = partners_.groups.by_number(packet.group);
  MemberRank* const rank = group != nullptr ? group->rank_of_client(client.id) : nullptr;
  DeclaredTensor* const found = rank != nullptr ? group->tensors.find(packet.tensor) : nullptr;
  const std::uint64_t bit = rank != nullptr ? group->bit_of(*rank) : 0;
  if (found == nullptr || (found->holders & bit) == 0) {
    return outlets_.answers.done(client.id, packet.header.request, Errc::unknown_tensor,
                                 "the tensor is not declared");
  }
  found->holders &= ~bit;
  group->names.release(group->index_of(*rank), found->state->name);
  if (found->holders == 0) drop(*group, packet.tensor);
  outlets_.answers.done(client.id, packet.header.request, Errc::ok, "");
}

// What does not fit in the rings of the lanes waits here, not as commands.
int TensorRegistry::release_left(const TimeSlice& slice) {
  int tensors = 0;
  while (!left_.empty() && !outlets_.lanes.has_backlog()) {
    if (!release_next(left_.front())) {
      left_.pop_front();
      continue;
    }
    ++tensors;
    if (slice.is_over()) break;
  }
  return tensors;
}

bool TensorRegistry::release_next(LeftRank& rank) {
  MemberGroup* const group = partners_.groups.by_number(rank.group);
  // Of a group that is removed the tensors are forgotten, whoever holds them.
  if (group == nullptr || group->phase == MemberGroup::Phase::removing) return false;
  DeclaredTensor* const next = group->tensors.after(rank.last);
  if (next == nullptr) return false;
  rank.last = next->state->id;
  const bool holds = (next->holders & rank.bit) != 0;
  next->holders &= ~rank.bit;
  if (holds && next->holders == 0) drop(*group, next->state->id);
  return true;
}

void TensorRegistry::on_dropped(MemberGroup& group, std::uint64_t id, std::uint32_t release) {
  DeclaredTensor* const tensor = group.tensors.find(id);
  if (tensor == nullptr || tensor->holders != 0 || release != tensor->releases) return;
  if (++tensor->dropped < group.lane_count) return;
  dispose_of(group, {forget(group, *tensor)});
}

std::shared_ptr<TensorState> TensorRegistry::forget(MemberGroup& group, DeclaredTensor& tensor) {
  if (partners_.tuning != nullptr) partners_.tuning->end(*tensor.state);
  keep(group, tensor);
  std::shared_ptr<TensorState> state = tensor.state;
  group.tensors.remove(state->id);
  return state;
}

void TensorRegistry::forget_last_of(const std::string& key, const std::string& name) {
  for (const std::uint64_t number : removed_) {
    MemberGroup& group = *partners_.groups.by_number(number);
    for (DeclaredTensor* const last : group.tensors.named(name)) {
      if (last->state_key == key) return dispose_of(group, {forget(group, *last)});
    }
  }
}

// A group may have very many tensors, and names that it remembers.
int TensorRegistry::forget_groups(const TimeSlice& slice) {
  int groups = 0;
  while (!removed_.empty()) {
    ++groups;
    MemberGroup& group = *partners_.groups.by_number(removed_.front());
    forget_some(group, slice);
    if (!group.tensors.empty() || !group.names.empty()) break;
    removed_.pop_front();
    if (partners_.tuning != nullptr) partners_.tuning->group_ended(group);
    partners_.groups.forget(group);
    if (slice.is_over()) break;
  }
  return groups;
}

void TensorRegistry::forget_some(MemberGroup& group, const TimeSlice& slice) {
  States states;
  while (!group.tensors.empty() || !group.names.empty()) {
    if (!group.tensors.empty()) {
      states.push_back(forget(group, group.tensors.any()));
    } else {
      group.names.forget_one();
    }
    if (slice.is_over()) break;
  }
  dispose_of(group, std::move(states));
}

// To free codec state that was used takes a fifth of a second for each GiB. What is small is freed
// here: very many things that wait would count as a user who is stuck.
void TensorRegistry::dispose_of(const MemberGroup& group, States states) const {
  std::erase_if(states, [](const auto& one) { return one.use_count() > 1; });  // it is kept
  std::uint64_t bytes = 0;
  for (const auto& one : states) bytes += one->state_bytes();
  if (bytes < TensorState::kMuchState) return;
  const auto left = std::make_shared<States>(std::move(states));
  const auto free_some = [left] {
    if (left->back()->codec.free_some()) return true;
    left->pop_back();
    return !left->empty();
  };
  outlets_.disposal.take(group.account, free_some, bytes);
}

void TensorRegistry::keep(const MemberGroup& group, DeclaredTensor& tensor) {
  for (const auto& [number, other] : partners_.groups.all()) {
    if (other->uid != group.uid || other->phase == MemberGroup::Phase::removing) continue;
    for (DeclaredTensor* next : other->tensors.named(tensor.state->name)) {
      if (next == &tensor || next->state->codec.empty() || !next->state_key.empty()) continue;
      // It was declared again before the lanes had let go of this one, and has begun at zero.
      next->state_key = std::move(tensor.state_key);
      if (tensor.state->has_history()) count_reset(*other, *next->state);
      return;
    }
  }
  partners_.kept.keep(group, tensor);
}

void TensorRegistry::count_reset(const MemberGroup& group, TensorState& state) {
  ++outlets_.counters->state_resets;
  bump(state.resets, std::uint64_t{1});
  LogFields fields = log_fields(group);
  fields.tensor = state.name;
  outlets_.log.write(
      {LogTopic::states, group.account, spdlog::level::info, fields},
      "the codec state of {} was reset: not kept (state_ttl), another layout or memory, an op in "
      "flight, or half imported",
      state.name);
}

}  // namespace tern::daemon
