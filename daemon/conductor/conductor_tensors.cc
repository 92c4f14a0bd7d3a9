// Tensors: declarations, the codec state that goes with them, statistics.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "daemon/conductor/conductor.h"
#include "daemon/service/log.h"

namespace tern::daemon {
namespace {

// FNV-1a over name and generation: the same on all nodes, and another one when a name is declared
// again, so that uses of the old and the new declaration cannot be mixed up. The bits that choose
// the owners of chunks come from the name alone, so that residuals fit the next declaration.
std::uint64_t tensor_id(const std::string& name, std::uint32_t generation) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const char c : name) mix(static_cast<unsigned char>(c));
  mix(0);
  const std::uint64_t of_name = hash;
  for (int shift = 0; shift < 32; shift += 8) mix(static_cast<unsigned char>(generation >> shift));
  hash = (hash & ~shm::kSpreadMask) | (of_name & shm::kSpreadMask);
  return hash == 0 ? 1 : hash;
}

// What ranks must agree on, for an error.
std::string declaration_text(const TensorState& state) {
  return std::to_string(state.count) + " " + std::string(dtype_name(state.dtype)) + " (" +
         std::string(role_name(state.role)) + (state.exempt ? ", exempt" : "") + ", recipe " +
         codec::canonical_text(state.declared.recipe) + ")";
}

}  // namespace

CodecState::Shape Conductor::codec_shape(const MemberGroup& group, const TensorState& state) {
  CodecState::Shape shape;
  shape.count = state.count;
  shape.chunk_elements = shm::chunk_elements(group.chunk_bytes, state.dtype);
  shape.nodes = static_cast<std::uint32_t>(group.addresses.size());
  shape.self = group.node;
  shape.dtype = state.dtype;
  return shape;
}

std::uint64_t Conductor::state_bytes_of(std::uint32_t uid) const {
  std::uint64_t bytes = 0;
  for (const auto& [number, group] : groups_) {
    if (group->uid_of_user != uid) continue;
    for (const auto& [id, tensor] : group->tensors) bytes += tensor.state->state_bytes();
  }
  for (const auto& [key, kept] : kept_states_) {
    if (kept.uid == uid) bytes += kept.state->state_bytes();
  }
  return bytes;
}

Result<std::shared_ptr<TensorState>> Conductor::describe_tensor(
    const MemberGroup& group, const shm::TensorDeclarePacket& packet, const std::string& name,
    std::uint32_t generation, std::string& replay) const {
  auto state = std::make_shared<TensorState>();
  state->id = tensor_id(name, generation);
  state->name = name;
  state->dtype = static_cast<DType>(packet.dtype);
  state->role = static_cast<Role>(packet.role);
  state->count = packet.count;
  state->exempt = packet.exempt != 0;
  state->priority = packet.priority;
  state->generation = generation;
  std::string text = packet.recipe;
  if (text.empty() && tuning_ != nullptr) {
    text = tuning_->policy().advice(group.job, name).recipe;
  }
  if (text.empty()) {
    text = role_may_be_lossy(state->role) ? settings_.default_gradient_recipe : "raw";
  }
  // A log of choices stands in for the tuner that has written it.
  constexpr std::string_view kReplay = "replay:";
  if (text.starts_with(kReplay)) {
    replay = text.substr(kReplay.size());
    if (replay.empty()) return fail(Errc::bad_recipe, "replay: give the name of a log");
    text = "auto";
  }
  const RecipeTerms terms{.dtype = state->dtype,
                          .role = state->role,
                          .exempt = state->exempt,
                          .has_tuner = tuning_ != nullptr,
                          .nodes = static_cast<std::uint32_t>(group.addresses.size()),
                          .chunk_elements = shm::chunk_elements(group.chunk_bytes, state->dtype)};
  const auto resolved = resolve_declared(text, terms);
  if (!resolved) return fail(resolved.error().code, resolved.error().text);
  state->declared = *resolved;
  state->recipe = resolved->recipe;
  state->one_lane = resolved->one_lane;
  return state;
}

Result<void> Conductor::allocate_state(const Client& client, const MemberGroup& group,
                                       TensorState& state, std::uint64_t freed) const {
  if (!state.declared.compresses()) return {};
  const CodecState::Shape shape = codec_shape(group, state);
  const std::uint64_t bytes = CodecState::bytes_of(state.declared.recipe, shape);
  if (state_bytes_of(client.credentials.uid) - freed + bytes > settings_.max_state_bytes) {
    return fail(Errc::quota_exceeded, "codec state of " + std::to_string(bytes) +
                                          " bytes more exceeds max_state_bytes = " +
                                          std::to_string(settings_.max_state_bytes));
  }
  if (!state.codec.allocate(state.declared.recipe, shape)) {
    return fail(Errc::out_of_memory, "no memory for the tensor's codec state");
  }
  return {};
}

void Conductor::on_tensor_declare(Client& client, const shm::TensorDeclarePacket& packet) {
  const std::uint64_t request = packet.header.request;
  MemberGroup* group = group_by_number(packet.group);
  MemberRank* rank = group != nullptr ? rank_of_client(*group, client.id) : nullptr;
  if (rank == nullptr) {
    return answer(client.id, request, Errc::unknown_group, "this client is not in that group");
  }
  const auto refuse = [&](Errc code, const std::string& text) {
    refuse_declaration({client, request, short_uid(group->uid)}, code, text);
  };
  if (!shm::terminated(packet.name) || packet.name[0] == '\0') {
    return refuse(Errc::invalid_argument, "a tensor's name must have 1 to 127 bytes");
  }
  if (!shm::terminated(packet.recipe) || !shm::terminated(packet.level)) {
    return refuse(Errc::invalid_argument, "the recipe's or level's text does not end");
  }
  const std::string level = packet.level;
  if (TuningAdvice advice; !level.empty()) {
    const auto read = read_advice(level, advice);
    if (!read || !advice.recipe.empty()) {
      return refuse(Errc::invalid_argument,
                    "level is one of lossless, conservative, balanced, aggressive, or a bound as "
                    "loss<=0.01 or residual<=2");
    }
  }
  if (dtype_bytes(static_cast<DType>(packet.dtype)) == 0) {
    return refuse(Errc::invalid_argument, "unknown dtype " + std::to_string(packet.dtype));
  }
  if (packet.role > static_cast<std::uint8_t>(Role::weights)) {
    return refuse(Errc::invalid_argument, "unknown role " + std::to_string(packet.role));
  }
  if (packet.count == 0 || packet.count > (std::uint64_t{1} << 40)) {
    return refuse(Errc::invalid_argument, "count must be 1 .. 2^40");
  }
  if (group->ended) return refuse(group->end_code, group->end_text);
  const std::uint64_t bit = group->bit_of(*rank);
  const std::string name = packet.name;
  for (const auto& [id, tensor] : group->tensors) {
    if (tensor.state->name == name && (tensor.holders & bit) != 0) {
      return refuse(Errc::already_exists, "the tensor " + name + " is declared already");
    }
  }
  const auto declared = rank->declarations.find(name);
  if (declared == rank->declarations.end() &&
      rank->declarations.size() >= settings_.max_tensors_per_user) {
    return refuse(Errc::quota_exceeded, "this rank has declared max_tensors_per_user = " +
                                            std::to_string(settings_.max_tensors_per_user) +
                                            " names; use names again, or leave and join");
  }
  const std::uint32_t generation = declared == rank->declarations.end() ? 0 : declared->second;
  std::string replay;
  const auto described = describe_tensor(*group, packet, name, generation, replay);
  if (!described) return refuse(described.error().code, described.error().text);
  const std::uint64_t id = (*described)->id;
  auto found = group->tensors.find(id);
  if (found != group->tensors.end()) {
    const TensorState& other = *found->second.state;
    const TensorState& mine = **described;
    if (other.name != name || found->second.holders == 0) {
      return refuse(Errc::already_exists, "the name " + name + " cannot be told from " +
                                              other.name + "; choose another name");
    }
    if (other.dtype != mine.dtype || other.count != mine.count || other.role != mine.role ||
        other.exempt != mine.exempt || !same_state(other.declared, mine.declared)) {
      const auto holder = static_cast<std::size_t>(std::countr_zero(found->second.holders));
      return refuse(Errc::mismatch, name + ": rank " + std::to_string(group->ranks[holder].rank) +
                                        " says " + declaration_text(other) + ", rank " +
                                        std::to_string(rank->rank) + " says " +
                                        declaration_text(mine));
    }
  } else {
    if (const std::string problem = tensor_problem(client.credentials.uid); !problem.empty()) {
      return refuse(Errc::quota_exceeded, problem);
    }
    DeclaredTensor tensor;
    tensor.state = *described;
    const std::string key = std::to_string(client.credentials.uid) + "/" + client.job + "/" + name;
    const auto kept = kept_states_.find(key);
    const std::uint64_t freed = kept != kept_states_.end() ? kept->second.state->state_bytes() : 0;
    const auto allocated = allocate_state(client, *group, *tensor.state, freed);
    if (!allocated) return refuse(allocated.error().code, allocated.error().text);
    if (tensor.state->declared.tuned) {
      const auto begun = tuning_->begin(*group, *tensor.state, level, replay);
      if (!begun) return refuse(begun.error().code, begun.error().text);
    }
    bool reset = !tensor.state->codec.empty() && take_lost_state(*group, name);
    if (!tensor.state->codec.empty() && used_states_.insert(key).second) {
      // The only tensor of this name in the job: its state outlives the declaration.
      tensor.state_key = key;
      if (kept != kept_states_.end()) {
        TensorState& last = *kept->second.state;
        const bool had_history = last.has_history();
        if (last.doubtful || last.half_imported ||
            !tensor.state->codec.adopt_residual(last.codec)) {
          reset = reset || had_history;
        } else if (tensor.state->tuning) {
          tensor.state->tuning->owe_all();
        }
        kept_states_.erase(kept);
      }
    }
    if (reset) count_reset(*group, *tensor.state);
    found = group->tensors.emplace(id, std::move(tensor)).first;
    command_all(*group, command::AddTensor{nullptr, found->second.state.get()});
  }
  ++rank->declarations[name];
  found->second.holders |= bit;
  auto reply =
      shm::make_packet<shm::TensorDeclaredPacket>(shm::PacketKind::tensor_declared, request);
  reply.tensor = id;
  reply.next_sequence = 0;
  reply.one_lane = found->second.state->declared.one_lane ? 1 : 0;
  answer_packet(client.id, reply);
}

std::string Conductor::recipe_text(const TensorState& state) const {
  std::string text = codec::canonical_text(state.declared.recipe);
  if (tuning_ != nullptr && state.tuning) text += ": " + tuning_->choice_text(state);
  return text;
}

void Conductor::release_tensor(MemberGroup& group, std::uint64_t id) {
  if (group.removing) return;  // it goes with the group, which a lane may have let go already
  DeclaredTensor& tensor = group.tensors.at(id);
  command_all(group, command::DropTensor{nullptr, tensor.state.get()});
}

void Conductor::keep_state(const MemberGroup& group, DeclaredTensor& tensor) {
  const std::string& name = tensor.state->name;
  const bool had_history = tensor.state->has_history();
  for (auto& [number, other] : groups_) {
    if (other->uid != group.uid || other->removing) continue;
    for (auto& [id, next] : other->tensors) {
      if (next.state == tensor.state || next.state->name != name || next.state->codec.empty() ||
          !next.state_key.empty()) {
        continue;
      }
      // It was declared again before the lanes had let go of this one, and has begun at zero.
      next.state_key = std::move(tensor.state_key);
      if (had_history) count_reset(*other, *next.state);
      return;
    }
  }
  if (!tensor.state_key.empty()) {
    used_states_.erase(tensor.state_key);
    if (settings_.state_ttl_ns > 0) {
      kept_states_[tensor.state_key] = {tensor.state, clock_.now_ns() + settings_.state_ttl_ns,
                                        group.uid_of_user, group.uid};
      return;
    }
  }
  if (had_history) remember_lost_state(group.uid_of_user, group.uid, name);
}

void Conductor::remember_lost_state(std::uint32_t user, const std::string& group,
                                    const std::string& name) {
  // Beyond this many a reset is not noticed, which is better than memory without a bound.
  auto& lost = lost_states_[user];
  if (lost.size() < settings_.max_tensors_per_user) {
    lost[group + "/" + name] = clock_.now_ns() + settings_.join_timeout_max_ns;
  }
}

void Conductor::count_reset(const MemberGroup& group, TensorState& state) {
  ++counters_->state_resets;
  bump(state.resets, std::uint64_t{1});
  log_about({.job = group.job, .group = short_uid(group.uid), .tensor = state.name},
            spdlog::level::info,
            "the codec state of {} was reset: not kept (state_ttl), another layout or memory, an "
            "op in flight, or half imported",
            state.name);
}

bool Conductor::take_lost_state(const MemberGroup& group, const std::string& name) {
  const auto of_user = lost_states_.find(group.uid_of_user);
  return of_user != lost_states_.end() && of_user->second.erase(group.uid + "/" + name) != 0;
}

void Conductor::expire_states(std::uint64_t now_ns) {
  std::erase_if(kept_states_, [&](const auto& one) {
    const KeptState& kept = one.second;
    if (kept.expires_ns > now_ns) return false;
    if (kept.state->has_history()) remember_lost_state(kept.uid, kept.group, kept.state->name);
    return true;
  });
  for (auto& [user, lost] : lost_states_) {
    std::erase_if(lost, [now_ns](const auto& one) { return one.second <= now_ns; });
  }
  std::erase_if(lost_states_, [](const auto& one) { return one.second.empty(); });
}

void Conductor::on_tensor_release(Client& client, const shm::TensorReleasePacket& packet) {
  MemberGroup* group = group_by_number(packet.group);
  MemberRank* rank = group != nullptr ? rank_of_client(*group, client.id) : nullptr;
  const auto found = rank != nullptr ? group->tensors.find(packet.tensor)
                                     : std::map<std::uint64_t, DeclaredTensor>::iterator{};
  const std::uint64_t bit = rank != nullptr ? group->bit_of(*rank) : 0;
  if (rank == nullptr || found == group->tensors.end() || (found->second.holders & bit) == 0) {
    return answer(client.id, packet.header.request, Errc::unknown_tensor,
                  "the tensor is not declared");
  }
  found->second.holders &= ~bit;
  if (found->second.holders == 0) release_tensor(*group, packet.tensor);
  answer(client.id, packet.header.request, Errc::ok, "");
}

void Conductor::on_tensor_stats(Client& client, const shm::TensorReleasePacket& packet) {
  MemberGroup* group = group_by_number(packet.group);
  if (group == nullptr || rank_of_client(*group, client.id) == nullptr ||
      !group->tensors.contains(packet.tensor)) {
    return answer(client.id, packet.header.request, Errc::unknown_tensor,
                  "the tensor is not declared");
  }
  const TensorState& state = *group->tensors.at(packet.tensor).state;
  const TensorTotals totals = total(state);
  auto reply = shm::make_packet<shm::TensorStatsPacket>(shm::PacketKind::tensor_stats_reply,
                                                        packet.header.request);
  reply.ops = totals.ops;
  reply.bytes_raw = totals.bytes_raw;
  reply.bytes_sent = totals.bytes_sent;
  const double ratio = totals.residual_ratio();
  std::memcpy(&reply.residual_ratio_bits, &ratio, sizeof(ratio));
  reply.encode_ns = totals.encode_ns;
  reply.queue_ns = totals.queue_ns;
  reply.wire_ns = totals.wire_ns;
  reply.decode_ns = totals.decode_ns;
  reply.wait_ns = totals.wait_ns;
  reply.raw_fallbacks = totals.raw_fallbacks;
  reply.state_bytes = state.state_bytes();
  std::strncpy(reply.recipe, recipe_text(state).c_str(), sizeof(reply.recipe) - 1);
  answer_packet(client.id, reply);
}

}  // namespace tern::daemon
