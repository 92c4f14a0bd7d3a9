// What goes over the socket: groups and tensors.

#include <utility>

#include "client_lib/client.h"

namespace tern::client_lib {
namespace {

// What answers to a join and to a split have in common.
template <typename Joined>
std::shared_ptr<GroupState> state_of(const Joined& joined) {
  auto group = std::make_shared<GroupState>();
  group->number = joined.group;
  group->node = joined.node;
  group->node_count = static_cast<std::uint32_t>(joined.node_count);
  group->lane_count = joined.lane_count;
  group->epoch = joined.epoch;
  group->chunk_bytes = joined.chunk_bytes;
  group->eager_bytes = joined.eager_bytes;
  group->max_ops_in_flight = joined.max_ops_in_flight;
  return group;
}

}  // namespace

tl::unexpected<Error> Client::request_failed(Error error) {
  if (error.code == Errc::daemon_lost || error.code == Errc::protocol_error) notice_loss();
  return tl::unexpected(std::move(error));
}

Result<shm::GroupMintedPacket> Client::mint() {
  Result<shm::GroupMintedPacket> minted = questions_.mint();
  if (!minted) return request_failed(std::move(minted.error()));
  return minted;
}

Result<std::shared_ptr<GroupState>> Client::join(const std::string& id,
                                                 const JoinOptions& options) {
  std::uint64_t completed_ops = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto completed = completed_by_id_.find(id);
    if (completed != completed_by_id_.end()) completed_ops = completed->second;
  }
  Result<shm::GroupJoinedPacket> joined =
      questions_.join(id, options, completed_ops, segment_.lane_count());
  if (!joined) return request_failed(std::move(joined.error()));
  std::shared_ptr<GroupState> group = state_of(*joined);
  group->id = id;
  group->rank = options.rank;
  group->size = options.size;
  group->last_common_op = joined->last_common_op;
  return group;
}

Result<std::shared_ptr<GroupState>> Client::split(const GroupState& parent,
                                                  const SplitOptions& options) {
  if ((features_ & shm::kFeatureSplit) == 0) {
    return fail(Errc::unsupported, "this ternd is of a version that cannot split groups");
  }
  Result<shm::GroupSplitReplyPacket> reply =
      questions_.split(parent, options, segment_.lane_count());
  if (!reply) return request_failed(std::move(reply.error()));
  if (reply->group == 0) return std::shared_ptr<GroupState>();
  std::shared_ptr<GroupState> child = state_of(*reply);
  child->rank = reply->rank;
  child->size = reply->size;
  return child;
}

Status Client::leave(const std::shared_ptr<GroupState>& group) {
  {
    const std::lock_guard lock(mutex_);
    poll_completions();
    group->left = true;
    // Nobody can come back to a group without an id.
    if (!group->id.empty()) completed_by_id_[group->id] = ops_.completed_prefix(*group);
  }
  if (Status left = questions_.leave(*group); !left) return request_failed(std::move(left.error()));
  return {};
}

Result<std::shared_ptr<TensorState>> Client::declare(const std::shared_ptr<GroupState>& group,
                                                     const DeclareOptions& options) {
  Result<std::shared_ptr<TensorState>> tensor = questions_.declare(group, options, features_);
  if (!tensor) return request_failed(std::move(tensor.error()));
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
  if (Status released = questions_.release(*tensor); !released) {
    return request_failed(std::move(released.error()));
  }
  return {};
}

Result<shm::TensorStatsPacket> Client::stats(const TensorState& tensor) {
  Result<shm::TensorStatsPacket> stats = questions_.stats(tensor);
  if (!stats) return request_failed(std::move(stats.error()));
  return stats;
}

}  // namespace tern::client_lib
