// An op's way into the lanes: room, copies, sequence, entries. Nothing of it is visible to the
// daemon before all its lanes are known to have room, so that WOULD_BLOCK leaves everything as it
// was.

#include <algorithm>
#include <bit>
#include <cstring>

#include "client_lib/client.h"
#include "shm/sharding.h"
#include "shm/wakeup.h"

namespace tern::client_lib {

// Takes back what was reserved for an op on every way out but success. Ends with mutex_ held.
class Client::Undo {
 public:
  Undo(Client& client, Op& op) noexcept : client_(client), op_(&op) {}
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  ~Undo() {
    if (op_ != nullptr) client_.abandon_op(*op_);
  }
  void dismiss() noexcept { op_ = nullptr; }

 private:
  Client& client_;
  Op* op_;
};

Result<std::uint64_t> Client::submit(const OpRequest& request) {
  Result<std::uint64_t> ticket = try_submit(request);
  if (!ticket && ticket.error().code == Errc::would_block && requests_.lost()) {
    notice_loss();
    return fail(Errc::daemon_lost, "ternd closed the connection");
  }
  return ticket;
}

Result<std::uint64_t> Client::try_submit(const OpRequest& request) {
  std::unique_lock lock(mutex_);
  if (lost_.load()) return fail(Errc::daemon_lost, "ternd has ended; connect again");
  Op* op = ops_.reserve();
  if (op == nullptr) {
    return fail(Errc::would_block, "512 operations are in flight or not yet waited for");
  }
  Undo undo(*this, *op);
  if (Status prepared = prepare(request, *op); !prepared) {
    return tl::unexpected(std::move(prepared.error()));
  }
  if (op->input_copy != kNoOffset && request.input_matters) {
    // Large, hence unlocked: in state preparing the op is this thread's alone.
    std::byte* copy = segment_.arena().data() + op->input_copy;
    lock.unlock();
    std::memcpy(copy, request.input, op->bytes);
    lock.lock();
  }
  Result<std::uint64_t> ticket = push(request, *op);
  if (!ticket) return ticket;
  undo.dismiss();
  const std::uint32_t lanes = op->lanes;
  lock.unlock();
  wake_lanes(lanes);
  return ticket;
}

Status Client::prepare(const OpRequest& request, Op& op) {
  GroupState& group = *request.group;
  if (group.left) return fail(Errc::group_left, "the group has been left");
  if (group.in_flight >= group.max_ops_in_flight) poll_completions();
  if (group.in_flight >= group.max_ops_in_flight) {
    return fail(Errc::would_block, "the group's max_ops_in_flight are in flight");
  }
  op.bytes = request.count * dtype_bytes(request.dtype);
  if (op.bytes != 0) {
    if (Status placed = place_copies(request, op); !placed) return placed;
  }
  op.group = request.group;
  op.tensor = request.tensor;
  ++group.in_flight;
  if (op.tensor) ++op.tensor->in_flight;
  return {};
}

// An output outside the arena gets one copy, which also holds the input if that is outside as well:
// the op then runs in place in the copy.
Status Client::place_copies(const OpRequest& request, Op& op) {
  const bool input_outside =
      request.input_matters && !arena_offset(request.input, op.bytes, request.dtype).has_value();
  const bool output_outside = !arena_offset(request.output, op.bytes, request.dtype).has_value();
  if (!input_outside && !output_outside) return {};
  const std::optional<std::uint64_t> copy = arena_->allocate(op.bytes);
  if (!copy) {
    return fail(copies_in_use_ != 0 ? Errc::would_block : Errc::out_of_memory,
                "no room in the arena for a copy of " + std::to_string(op.bytes) +
                    " bytes; wait for operations, free tensors or raise arena_bytes");
  }
  ++copies_in_use_;
  if (input_outside) op.input_copy = *copy;
  if (output_outside) {
    op.output_copy = *copy;
    op.output = request.output;
  }
  return {};
}

bool Client::lanes_have_room(std::uint32_t lanes) noexcept {
  for (std::uint32_t lane = 0; lane < segment_.lane_count(); ++lane) {
    if ((lanes >> lane & 1u) != 0 && !submit_[lane].has_room(1)) return false;
  }
  return true;
}

Result<std::uint64_t> Client::push(const OpRequest& request, Op& op) {
  GroupState& group = *op.group;
  if (lost_.load()) return fail(Errc::daemon_lost, "ternd has ended; connect again");
  if (group.left) return fail(Errc::group_left, "the group has been left");
  TensorState* tensor = op.tensor.get();
  std::uint64_t& next_sequence = tensor != nullptr ? tensor->next_sequence : group.next_anonymous;
  const shm::Sharding sharding =
      shm::make_sharding({.tensor = tensor != nullptr ? tensor->id : 0,
                          .sequence = next_sequence,
                          .count = request.count,
                          .dtype = request.dtype,
                          .chunk_bytes = group.chunk_bytes,
                          .nodes = group.node_count,
                          .lanes = group.lane_count,
                          .one_lane = tensor != nullptr && tensor->one_lane});
  std::uint32_t lanes = 0;
  for (std::uint32_t lane = 0; lane < group.lane_count; ++lane) {
    if (sharding.uses_lane(lane)) lanes |= 1u << lane;
  }
  if (!lanes_have_room(lanes)) {
    return fail(Errc::would_block, "a submission ring is full; ternd is behind");
  }

  shm::SubmitEntry entry{};
  entry.ticket = ops_.ticket(op);
  entry.kind = static_cast<std::uint16_t>(request.kind);
  entry.dtype = static_cast<std::uint8_t>(request.dtype);
  entry.reduction = static_cast<std::uint8_t>(request.reduction);
  entry.role = static_cast<std::uint8_t>(tensor != nullptr ? tensor->role : Role::exact);
  entry.group = group.number;
  entry.tensor = tensor != nullptr ? tensor->id : 0;
  entry.sequence = next_sequence++;
  entry.count = request.count;
  if (op.bytes != 0) {
    entry.output_offset = op.output_copy != kNoOffset
                              ? op.output_copy
                              : *arena_offset(request.output, op.bytes, request.dtype);
    entry.input_offset = entry.output_offset;
    if (op.input_copy != kNoOffset) {
      entry.input_offset = op.input_copy;
    } else if (request.input_matters) {
      entry.input_offset = *arena_offset(request.input, op.bytes, request.dtype);
    }
  }
  entry.root = request.root;
  const std::int32_t own_priority = tensor != nullptr ? tensor->priority : 0;
  entry.priority = request.priority != 0 ? request.priority : own_priority;
  entry.prescale_bits = std::bit_cast<std::uint32_t>(request.prescale);
  entry.state_scale_bits = std::bit_cast<std::uint32_t>(request.state_scale);
  request.recipe.copy(entry.recipe, sizeof entry.recipe - 1);

  op.state = Op::State::running;
  op.lanes = lanes;
  op.pending_lanes = lanes;
  op.group_index = group.submitted++;
  for (std::uint32_t lane = 0; lane < group.lane_count; ++lane) {
    if ((lanes >> lane & 1u) != 0) (void)submit_[lane].try_push(entry);
  }
  return entry.ticket;
}

void Client::wake_lanes(std::uint32_t lanes) noexcept {
  for (std::uint32_t lane = 0; lane < segment_.lane_count(); ++lane) {
    if ((lanes >> lane & 1u) != 0) {
      shm::wake_lane(segment_.lane_rings(lane), eventfds_[lane].get());
    }
  }
}

// Undoes reserve and prepare.
void Client::abandon_op(Op& op) noexcept {
  if (op.group) --op.group->in_flight;
  if (op.tensor && --op.tensor->in_flight == 0 && op.tensor->released) send_release(*op.tensor);
  free_copies(op);
  ops_.release(op);
}

void Client::free_copies(Op& op) noexcept {
  const std::uint64_t copy = op.output_copy != kNoOffset ? op.output_copy : op.input_copy;
  if (copy == kNoOffset) return;
  arena_->free(copy);
  --copies_in_use_;
  op.input_copy = kNoOffset;
  op.output_copy = kNoOffset;
}

Status Client::cancel(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  poll_completions();
  Op* op = ops_.find(ticket);
  if (op == nullptr) return fail(Errc::unknown_ticket, {});
  if (op->state == Op::State::ended || lost_.load()) return {};
  const std::uint32_t lanes = op->lanes;
  if (!lanes_have_room(lanes)) {
    return fail(Errc::would_block, "a submission ring is full; ternd is behind");
  }
  shm::SubmitEntry entry{};
  entry.ticket = ticket;
  entry.kind = static_cast<std::uint16_t>(shm::OpKind::cancel);
  entry.group = op->group->number;
  for (std::uint32_t lane = 0; lane < segment_.lane_count(); ++lane) {
    if ((lanes >> lane & 1u) != 0) (void)submit_[lane].try_push(entry);
  }
  lock.unlock();
  wake_lanes(lanes);
  return {};
}

}  // namespace tern::client_lib
