#include "daemon/conductor/kept_states.h"

#include <algorithm>
#include <iterator>

namespace tern::daemon {

// A job's name has no line end, so that no name of a tensor looks like a lineage.
std::string KeptStates::key_of(std::uint32_t user, const Origin& origin, const std::string& name) {
  const std::string lineage = origin.lineage.empty() ? "" : "\n" + origin.lineage;
  return std::to_string(user) + "/" + origin.job + lineage + "/" + name;
}

std::uint64_t KeptStates::bytes_of(const std::string& key, std::uint32_t account) const {
  const auto found = kept_.find(key);
  return found == kept_.end() || found->second.account != account ? 0 : found->second.bytes;
}

std::uint64_t KeptStates::bytes_of_user(std::uint32_t user) const {
  const auto found = accounts_.find(settings_.sub_users.owner_of(user));
  return found == accounts_.end() ? 0 : found->second.bytes;
}

std::uint64_t KeptStates::bytes() const {
  std::uint64_t all = 0;
  for (const auto& [account, held] : accounts_) all += held.bytes;
  return all;
}

// To free codec state that was used takes a fifth of a second for each GiB.
void KeptStates::forget(Map::iterator kept) {
  OfAccount& account = accounts_.at(kept->second.account);
  const std::uint64_t bytes = kept->second.state->state_bytes();
  if (bytes >= TensorState::kMuchState) {
    // Moved all the way: a copy that stayed here would be the last, if the disposal is quick.
    const bool is_last = kept->second.state.use_count() == 1;
    Disposal::Some free_some = [held = std::move(kept->second.state), is_last]() mutable {
      if (is_last && held->codec.free_some()) return true;
      held.reset();
      return false;
    };
    disposal_.take(kept->second.account, std::move(free_some), bytes);
  }
  account.bytes -= kept->second.bytes;
  account.by_age.erase({kept->second.expires_ns, kept->first});
  kept_.erase(kept);
}

void KeptStates::lose(Map::iterator kept) {
  const Kept& lost = kept->second;
  if (lost.state->has_history()) remember_lost(lost.account, lost.group, lost.state->name);
  forget(kept);
}

bool KeptStates::adopt(const MemberGroup& group, const std::string& key, DeclaredTensor& tensor) {
  if (tensor.state->codec.empty()) return false;
  bool reset = take_lost(group, tensor.state->name);
  if (!used_.insert(key).second) return reset;
  // The only tensor of this name in the job: its state outlives the declaration.
  tensor.state_key = key;
  const auto found = kept_.find(key);
  if (found == kept_.end()) return reset;
  TensorState& last = *found->second.state;
  const bool had_history = last.has_history();
  // What is left of a rank's share is of the node that the rank was on.
  const bool moved =
      last.memory_use.has_one_leg() && found->second.ranks_of_node != group.ranks_of_node;
  if (last.is_incomplete() || last.half_imported || moved ||
      !tensor.state->codec.adopt_residual(last.codec)) {
    reset = reset || had_history;
  } else {
    tensor.state->memory_use.adopt(last.memory_use);
    tensor.state->averages.store(last.averages.load(std::memory_order_relaxed),
                                 std::memory_order_relaxed);
    // Of another number of ranks the counts are of other shares.
    const bool same_ranks = found->second.ranks_of_node == group.ranks_of_node;
    const std::size_t lanes = std::min(last.lanes.size(), tensor.state->lanes.size());
    for (std::size_t lane = 0; same_ranks && lane < lanes; ++lane) {
      tensor.state->lanes[lane].shares = last.lanes[lane].shares;
    }
    if (tensor.state->tuning) tensor.state->tuning->set_all_residuals_pending();
  }
  forget(found);
  return reset;
}

void KeptStates::keep(const MemberGroup& group, const DeclaredTensor& tensor) {
  if (!tensor.state_key.empty()) {
    used_.erase(tensor.state_key);
    if (settings_.tensors.state_ttl_ns > 0) {
      if (const auto last = kept_.find(tensor.state_key); last != kept_.end()) forget(last);
      OfAccount& account = accounts_[group.account];
      const auto& ages = account.by_age;
      while (!ages.empty() && ages.size() >= settings_.limits.max_tensors_per_user) {
        lose(kept_.find(ages.begin()->second));
      }
      const std::uint64_t expires_ns = clock_.now_ns() + settings_.tensors.state_ttl_ns;
      const std::uint64_t bytes = tensor.state->state_bytes();
      account.bytes += bytes;
      account.by_age.emplace(expires_ns, tensor.state_key);
      kept_[tensor.state_key] = {tensor.state, expires_ns, group.account,
                                 group.uid,    bytes,      group.ranks_of_node};
      return;
    }
  }
  if (tensor.state->has_history()) {
    remember_lost(group.account, group.uid, tensor.state->name);
  }
}

void KeptStates::remember_lost(std::uint32_t account, const std::string& group,
                               const std::string& name) {
  // Beyond this many a reset is not noticed, which is better than memory without a bound.
  Lost& lost = lost_[account];
  if (lost.size() < settings_.limits.max_tensors_per_user) {
    lost[group + "/" + name] = clock_.now_ns() + settings_.ops.join_timeout_max_ns;
  }
}

bool KeptStates::take_lost(const MemberGroup& group, const std::string& name) {
  const auto of_user = lost_.find(group.account);
  return of_user != lost_.end() && of_user->second.erase(group.uid + "/" + name) != 0;
}

bool KeptStates::expire(std::uint64_t now_ns, const TimeSlice& slice) {
  for (auto& [account, held] : accounts_) {
    while (!held.by_age.empty() && held.by_age.begin()->first <= now_ns) {
      lose(kept_.find(held.by_age.begin()->second));
      if (slice.is_over()) return false;
    }
  }
  std::erase_if(accounts_, [](const auto& one) { return one.second.by_age.empty(); });
  for (auto& [account, lost] : lost_) {
    std::erase_if(lost, [now_ns](const auto& one) { return one.second <= now_ns; });
  }
  std::erase_if(lost_, [](const auto& one) { return one.second.empty(); });
  return true;
}

}  // namespace tern::daemon
