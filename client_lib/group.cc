// What goes over the socket: groups and tensors.

#include <algorithm>
#include <cstring>

#include "client_lib/client.h"

namespace tern::client_lib {
namespace {

// REQUIRES: text fits with its zero; the C functions have checked it.
template <std::size_t kBytes>
void write_text(char (&field)[kBytes], std::string_view text) noexcept {
  text.copy(field, kBytes - 1);
}

bool plausible(const shm::GroupJoinedPacket& joined, std::uint32_t lane_count) noexcept {
  return joined.lane_count >= 1 && joined.lane_count <= lane_count && joined.chunk_bytes >= 64 &&
         joined.node_count >= 1 && joined.node >= 0 && joined.node < joined.node_count &&
         joined.max_ops_in_flight >= 1;
}

}  // namespace

tl::unexpected<Error> Client::request_failed(Error error) {
  if (error.code == Errc::daemon_lost || error.code == Errc::protocol_error) notice_loss();
  return tl::unexpected(std::move(error));
}

Result<shm::GroupMintedPacket> Client::mint() {
  const auto question = shm::make_packet<shm::PacketHeader>(shm::PacketKind::group_mint, 0);
  Result<shm::GroupMintedPacket> minted = requests_.ask<shm::GroupMintedPacket>(
      question, shm::PacketKind::group_minted, request_deadline());
  if (!minted) return request_failed(std::move(minted.error()));
  if (std::memchr(minted->id, 0, sizeof minted->id) == nullptr) {
    return fail(Errc::protocol_error, "ternd minted a group id without an end");
  }
  return minted;
}

Result<std::shared_ptr<GroupState>> Client::join(const std::string& id,
                                                 const JoinOptions& options) {
  auto question = shm::make_packet<shm::GroupJoinPacket>(shm::PacketKind::group_join, 0);
  write_text(question.id, id);
  question.rank = options.rank;
  question.size = options.size;
  question.verify = options.verify ? 1 : 0;
  question.seed = options.seed;
  question.timeout_ms = options.timeout_ms;
  question.op_timeout_ms = options.op_timeout_ms;
  {
    const std::lock_guard lock(mutex_);
    const auto completed = completed_by_id_.find(id);
    question.completed_ops = completed == completed_by_id_.end() ? 0 : completed->second;
  }
  // The daemon ends a join at the time asked for and says who was missing; its answer needs time,
  // too.
  const bool forever = options.timeout_ms < 0 || request_timeout_ms_ < 0;
  std::int64_t wait_ms = -1;
  if (!forever && (__builtin_add_overflow(options.timeout_ms, request_timeout_ms_, &wait_ms) ||
                   __builtin_add_overflow(wait_ms, shm::kJoinLastWordMs, &wait_ms))) {
    wait_ms = -1;
  }
  Result<shm::GroupJoinedPacket> joined = requests_.ask<shm::GroupJoinedPacket>(
      question, shm::PacketKind::group_joined, Deadline::after_ms(wait_ms));
  if (!joined) return request_failed(std::move(joined.error()));
  if (!plausible(*joined, segment_.lane_count())) {
    requests_.close(Errc::protocol_error, "ternd joined a group with impossible numbers");
    return request_failed({Errc::protocol_error, "ternd joined a group with impossible numbers"});
  }
  auto group = std::make_shared<GroupState>();
  group->id = id;
  group->number = joined->group;
  group->rank = options.rank;
  group->size = options.size;
  group->node = joined->node;
  group->node_count = static_cast<std::uint32_t>(joined->node_count);
  group->lane_count = joined->lane_count;
  group->epoch = joined->epoch;
  group->chunk_bytes = joined->chunk_bytes;
  group->max_ops_in_flight = joined->max_ops_in_flight;
  group->last_common_op = joined->last_common_op;
  return group;
}

// The group's first ops that have all succeeded: up to the first that failed or still runs.
std::uint64_t Client::completed_prefix(const GroupState& group) noexcept {
  std::uint64_t prefix = std::min(group.submitted, group.first_failed);
  for (const Op& op : ops_.all()) {
    if (op.state == Op::State::running && op.group.get() == &group) {
      prefix = std::min(prefix, op.group_index);
    }
  }
  return prefix;
}

Status Client::leave(const std::shared_ptr<GroupState>& group) {
  {
    const std::lock_guard lock(mutex_);
    poll_completions();
    group->left = true;
    completed_by_id_[group->id] = completed_prefix(*group);
  }
  auto question = shm::make_packet<shm::GroupLeavePacket>(shm::PacketKind::group_leave, 0);
  question.group = group->number;
  Result<shm::DonePacket> done =
      requests_.ask<shm::DonePacket>(question, shm::PacketKind::done, request_deadline());
  if (!done) return request_failed(std::move(done.error()));
  return {};
}

Result<std::shared_ptr<TensorState>> Client::declare(const std::shared_ptr<GroupState>& group,
                                                     const DeclareOptions& options) {
  auto question = shm::make_packet<shm::TensorDeclarePacket>(shm::PacketKind::tensor_declare, 0);
  question.group = group->number;
  question.count = options.count;
  question.dtype = static_cast<std::uint8_t>(options.dtype);
  question.role = static_cast<std::uint8_t>(options.role);
  question.exempt = options.exempt ? 1 : 0;
  question.priority = options.priority;
  write_text(question.name, options.name);
  write_text(question.recipe, options.recipe);
  write_text(question.level, options.level);
  auto tensor = std::make_shared<TensorState>();
  Result<shm::TensorDeclaredPacket> declared = requests_.ask<shm::TensorDeclaredPacket>(
      question, shm::PacketKind::tensor_declared, request_deadline());
  if (!declared) return request_failed(std::move(declared.error()));
  if (declared->tensor == 0) {
    requests_.close(Errc::protocol_error, "ternd declared a tensor with id 0");
    return request_failed({Errc::protocol_error, "ternd declared a tensor with id 0"});
  }
  tensor->group = group;
  tensor->id = declared->tensor;
  tensor->count = options.count;
  tensor->dtype = options.dtype;
  tensor->role = options.role;
  tensor->priority = options.priority;
  tensor->one_lane = declared->one_lane != 0;
  tensor->next_sequence = declared->next_sequence;
  return tensor;
}

// With ops in flight the daemon is told when the last has ended: told now, a lane could find an
// entry of a tensor that it no longer knows.
Status Client::release(const std::shared_ptr<TensorState>& tensor) {
  {
    const std::lock_guard lock(mutex_);
    poll_completions();
    tensor->released = true;
    if (tensor->in_flight != 0 || tensor->group->left) return {};
  }
  auto question = shm::make_packet<shm::TensorReleasePacket>(shm::PacketKind::tensor_release, 0);
  question.group = tensor->group->number;
  question.tensor = tensor->id;
  Result<shm::DonePacket> done =
      requests_.ask<shm::DonePacket>(question, shm::PacketKind::done, request_deadline());
  if (!done) return request_failed(std::move(done.error()));
  return {};
}

void Client::send_release(const TensorState& tensor) noexcept {
  auto question = shm::make_packet<shm::TensorReleasePacket>(shm::PacketKind::tensor_release, 0);
  question.group = tensor.group->number;
  question.tensor = tensor.id;
  requests_.post(question);
}

Result<shm::TensorStatsPacket> Client::stats(const TensorState& tensor) {
  auto question = shm::make_packet<shm::TensorReleasePacket>(shm::PacketKind::tensor_stats, 0);
  question.group = tensor.group->number;
  question.tensor = tensor.id;
  Result<shm::TensorStatsPacket> stats = requests_.ask<shm::TensorStatsPacket>(
      question, shm::PacketKind::tensor_stats_reply, request_deadline());
  if (!stats) return request_failed(std::move(stats.error()));
  return stats;
}

}  // namespace tern::client_lib
