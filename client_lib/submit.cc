// An op's way into the lanes: room, copies, sequence, entries. Nothing of it is visible to the
// daemon before all its lanes are known to have room, so that WOULD_BLOCK leaves everything as it
// was.

#include <bit>
#include <cstring>

#include "client_lib/client.h"
#include "plan/cancel.h"
#include "plan/cut.h"

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
  if (!ticket && ticket.error().code == Errc::would_block && questions_.lost()) {
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
  if (op->input_copy != kNoOffset) {
    // Large, hence unlocked: in state preparing the op is this thread's alone.
    std::byte* copy = arena_->at(op->input_copy);
    lock.unlock();
    std::memcpy(copy, request.input, op->input_bytes);
    lock.lock();
  }
  Result<std::uint64_t> ticket = push(request, *op);
  if (!ticket) return ticket;
  undo.dismiss();
  const std::uint32_t lanes = op->lanes;
  lock.unlock();
  lanes_->wake(lanes);
  return ticket;
}

Status Client::prepare(const OpRequest& request, Op& op) {
  GroupState& group = *request.group;
  if (group.left) return fail(Errc::group_left, "the group has been left");
  const bool passes = request.plan->passes();
  if (group.is_full(passes)) poll_completions();
  if (group.is_full(passes)) {
    return fail(Errc::would_block, passes ? "256 sends and recvs of the group are in flight"
                                          : "the group's max_ops_in_flight are in flight");
  }
  op.extents = request.extents();
  op.input_bytes = op.extents.input.count * dtype_bytes(request.dtype);
  op.output_bytes = op.extents.output.count * dtype_bytes(request.dtype);
  if (Status placed = arena_->place_copies(request, op); !placed) return placed;
  op.group = request.group;
  op.tensor = request.tensor;
  op.passes = passes;
  op.received = request.received;
  op.element_bytes = dtype_bytes(request.dtype);
  ++group.count_of(passes);
  if (op.tensor) ++op.tensor->in_flight;
  return {};
}

Result<std::uint64_t> Client::push(const OpRequest& request, Op& op) {
  GroupState& group = *op.group;
  if (lost_.load()) return fail(Errc::daemon_lost, "ternd has ended; connect again");
  if (group.left) return fail(Errc::group_left, "the group has been left");
  TensorState* tensor = op.tensor.get();
  std::uint64_t& next_sequence = tensor != nullptr ? tensor->next_sequence : group.next_anonymous;
  const std::uint64_t sequence = request.plan->passes() ? request.tag : next_sequence;
  const std::uint32_t lanes = plan::lanes(*request.plan, request.shape(),
                                          {.tensor = tensor != nullptr ? tensor->id : 0,
                                           .sequence = sequence,
                                           .chunk_bytes = group.chunk_bytes,
                                           .nodes = group.node_count,
                                           .lanes = group.lane_count,
                                           .one_lane = tensor != nullptr && tensor->one_lane});
  if (!lanes_->have_room(lanes)) {
    return fail(Errc::would_block, "a submission ring is full; ternd is behind");
  }

  shm::SubmitEntry entry = entry_of(request, op);
  entry.sequence = sequence;
  op.state = Op::State::running;
  op.lanes = lanes;
  op.pending_lanes = lanes;
  if (!op.passes) {
    ++next_sequence;
    op.group_index = group.submitted++;
  }
  lanes_->push(lanes, entry);
  return entry.ticket;
}

shm::SubmitEntry Client::entry_of(const OpRequest& request, const Op& op) const noexcept {
  const TensorState* const tensor = op.tensor.get();
  shm::SubmitEntry entry{};
  entry.ticket = ops_.ticket(op);
  entry.kind = request.plan->number;
  entry.dtype = static_cast<std::uint8_t>(request.dtype);
  entry.reduction = static_cast<std::uint8_t>(request.reduction);
  entry.role = static_cast<std::uint8_t>(tensor != nullptr ? tensor->role : Role::exact);
  entry.group = op.group->number;
  entry.tensor = tensor != nullptr ? tensor->id : 0;
  entry.count = request.count;
  const auto place = [&](std::uint64_t copy, const void* memory, std::uint64_t bytes) {
    return copy != kNoOffset ? copy : *arena_->offset_of(memory, bytes, request.dtype);
  };
  if (op.output_bytes != 0) {
    entry.output_offset = place(op.output_copy, request.output, op.output_bytes);
    entry.input_offset = entry.output_offset;
  }
  if (op.input_bytes != 0) {
    entry.input_offset = place(op.input_copy, request.input, op.input_bytes);
  }
  if (op.counts_copy != kNoOffset) {
    entry.flags = shm::kEntryHasCounts;
    entry.counts_offset = op.counts_copy;
  }
  entry.root = request.root;
  const std::int32_t own_priority = tensor != nullptr ? tensor->priority : 0;
  entry.priority = request.priority != 0 ? request.priority : own_priority;
  entry.prescale_bits = std::bit_cast<std::uint32_t>(request.prescale);
  entry.state_scale_bits = std::bit_cast<std::uint32_t>(request.state_scale);
  request.recipe.copy(entry.recipe, sizeof entry.recipe - 1);
  return entry;
}

// Undoes reserve and prepare.
void Client::abandon_op(Op& op) noexcept {
  if (op.group) --op.group->count_of(op.passes);
  if (op.tensor && --op.tensor->in_flight == 0 && op.tensor->released) {
    questions_.post_release(*op.tensor);
  }
  arena_->free_copies(op);
  ops_.release(op);
}

Status Client::cancel(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  poll_completions();
  Op* op = ops_.find(ticket);
  if (op == nullptr) return fail(Errc::unknown_ticket, {});
  if (op->state == Op::State::ended || lost_.load()) return {};
  const std::uint32_t lanes = op->lanes;
  if (!lanes_->have_room(lanes)) {
    return fail(Errc::would_block, "a submission ring is full; ternd is behind");
  }
  lanes_->push(lanes, plan::cancel_entry(ticket, op->group->number));
  lock.unlock();
  lanes_->wake(lanes);
  return {};
}

}  // namespace tern::client_lib
