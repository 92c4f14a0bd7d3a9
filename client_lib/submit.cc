// An op's way into the lanes: room, copies, sequence, entries. Nothing of it is visible to the
// daemon before all its lanes are known to have room, so that WOULD_BLOCK leaves everything as it
// was.

#include <utility>

#include "client_lib/client.h"
#include "client_lib/entry.h"
#include "plan/cancel.h"
#include "plan/cut.h"

namespace tern::client_lib {

// The ops of one submission, in its order. Takes back what was reserved for them on every way out
// but success. Ends with mutex_ held.
class Client::Reserved {
 public:
  explicit Reserved(Client& client) noexcept : client_(client) {}
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  ~Reserved() {
    while (first_ != nullptr) client_.abandon_op(*std::exchange(first_, first_->next));
  }

  // nullptr when the table is full.
  Op* add() noexcept {
    Op* const op = client_.ops_.reserve();
    if (op == nullptr) return nullptr;
    (first_ == nullptr ? first_ : last_->next) = op;
    return last_ = op;
  }
  Op* first() noexcept { return first_; }
  void dismiss() noexcept { first_ = nullptr; }

 private:
  Client& client_;
  Op* first_ = nullptr;
  Op* last_ = nullptr;
};

std::string in_batch(std::size_t index, std::string_view kind, std::string_view problem) {
  std::string text = "operation " + std::to_string(index) + " of the batch (";
  return text.append(kind).append("): ").append(problem);
}

Status Client::submit(std::span<const OpRequest> requests, std::span<std::uint64_t> tickets) {
  std::uint64_t missing_bytes = 0;
  Status submitted = try_submit(requests, tickets, missing_bytes);
  while (missing_bytes != 0) {
    Status made = arena_->copy_regions().make(questions_, mutex_, features_, missing_bytes);
    if (!made && questions_.lost()) return request_failed(std::move(made.error()));
    if (!made) {
      return fail(submitted.error().code,
                  submitted.error().text + "; ternd makes no region for it: " + made.error().text);
    }
    submitted = try_submit(requests, tickets, missing_bytes);
  }
  if (!submitted && submitted.error().code == Errc::would_block && questions_.lost()) {
    notice_loss();
    return fail(Errc::daemon_lost, "ternd closed the connection");
  }
  return submitted;
}

// `missing_bytes`: what copies that have found no room would need of a region; 0: all have room.
Status Client::try_submit(std::span<const OpRequest> requests, std::span<std::uint64_t> tickets,
                          std::uint64_t& missing_bytes) {
  std::unique_lock lock(mutex_);
  missing_bytes = 0;
  if (lost_.load()) return fail(Errc::daemon_lost, "ternd has ended; connect again");
  Reserved ops(*this);
  arena_->begin_submission();
  Status no_room;  // for a copy of the first op that it is missing for
  for (const OpRequest& request : requests) {
    Op* const op = ops.add();
    if (op == nullptr) {
      return fail(Errc::would_block, "512 operations are in flight or not yet waited for");
    }
    const std::uint64_t missed = arena_->missing_bytes();
    Status prepared = prepare(request, *op);
    if (prepared) continue;
    if (requests.size() > 1) {
      prepared.error().text = in_batch(static_cast<std::size_t>(&request - requests.data()),
                                       request.plan->name, prepared.error().text);
    }
    if (arena_->missing_bytes() == missed) return prepared;
    if (no_room) no_room = std::move(prepared);
  }
  if (missing_bytes = arena_->missing_bytes(); missing_bytes != 0) return no_room;
  // In room that no copy needs.
  Op* placed = ops.first();
  for (const OpRequest& request : requests) {
    copies_->place_progress(request, *placed);
    placed = placed->next;
  }
  copies_->copy_first(*ops.first(), lock);
  const Result<std::uint32_t> lanes = push(requests, *ops.first());
  if (!lanes) return tl::unexpected(lanes.error());
  Op* const unfilled = OpCopies::to_fill(*ops.first());
  give_tickets(*ops.first(), tickets);
  ops.dismiss();
  lock.unlock();
  lanes_->wake(*lanes);
  copies_->fill(unfilled);
  return {};
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
  op.input_bytes = request.bytes_of(op.extents.input);
  op.output_bytes = request.bytes_of(op.extents.output);
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

namespace {

std::uint64_t& next_sequence_of(Op& op) noexcept {
  return op.tensor ? op.tensor->next_sequence : op.group->next_anonymous;
}

}  // namespace

// The lanes that have got entries.
Result<std::uint32_t> Client::push(std::span<const OpRequest> requests, Op& first) {
  if (lost_.load()) return fail(Errc::daemon_lost, "ternd has ended; connect again");
  if (first.group->left) return fail(Errc::group_left, "the group has been left");
  std::uint32_t lanes = 0;
  Op* op = &first;
  for (const OpRequest& request : requests) {
    number(request, *op);
    lanes |= op->lanes;
    op = op->next;
  }
  // Of a batch a ring may get less than that: which lanes an op has, others decide.
  if (!lanes_->have_room(lanes, requests.size())) {
    for (op = &first; op != nullptr; op = op->next) {
      if (!op->passes) --next_sequence_of(*op);
    }
    return fail(Errc::would_block, "a submission ring is full; ternd is behind");
  }
  op = &first;
  for (const OpRequest& request : requests) {
    op->state = Op::State::running;
    op->pending_lanes = op->lanes;
    if (!op->passes) op->group_index = op->group->submitted++;
    lanes_->write(op->lanes, entry_of(request, *op, ops_.ticket(*op)));
    op = op->next;
  }
  lanes_->publish(lanes);
  return lanes;
}

// Gives the op its sequence, which says with its shape on which lanes it runs.
void Client::number(const OpRequest& request, Op& op) noexcept {
  const GroupState& group = *op.group;
  const TensorState* const tensor = op.tensor.get();
  op.sequence = op.passes ? request.tag : next_sequence_of(op)++;
  op.lanes = plan::lanes(*request.plan, request.shape(),
                         {.tensor = tensor != nullptr ? tensor->id : 0,
                          .sequence = op.sequence,
                          .chunk_bytes = group.chunk_bytes,
                          .nodes = group.node_count,
                          .lanes = group.lane_count,
                          .one_lane = tensor != nullptr && tensor->one_lane});
}

// A ticket for each, or that of the first for all.
void Client::give_tickets(Op& first, std::span<std::uint64_t> tickets) noexcept {
  std::size_t given = 0;
  tickets[given++] = ops_.ticket(first);
  if (first.next == nullptr) return;
  const bool one_for_all = tickets.size() == 1;
  for (Op* op = &first; op != nullptr;) {
    Op* const next = op->next;
    if (one_for_all) {
      op->lead = &first;
      ++first.unended;
    } else {
      if (op != &first) tickets[given++] = ops_.ticket(*op);
      op->next = nullptr;
    }
    op = next;
  }
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

Client::NextUse Client::tell_next_use(TensorState& tensor, bool expects_changes) {
  const std::lock_guard lock(mutex_);
  tensor.told_by = expects_changes ? tensor.next_by : shm::EncodedBy{};
  return {tensor.next_sequence, tensor.told_by};
}

Status Client::cancel(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  poll_completions();
  Op* const first = ops_.find_named(ticket);
  if (first == nullptr) return fail(Errc::unknown_ticket, {});
  if (lost_.load()) return {};
  std::uint32_t lanes = 0;
  std::uint64_t entries = 0;
  const auto for_each_running = [&](auto use) {
    for (Op* op = first; op != nullptr; op = op->next) {
      if (op->state == Op::State::running) use(*op);
    }
  };
  for_each_running([&](const Op& op) { lanes |= op.lanes, ++entries; });
  if (!lanes_->have_room(lanes, entries)) {
    return fail(Errc::would_block, "a submission ring is full; ternd is behind");
  }
  for_each_running([&](const Op& op) {
    lanes_->write(op.lanes, plan::cancel_entry(ops_.ticket(op), op.group->number));
  });
  lanes_->publish(lanes);
  lock.unlock();
  lanes_->wake(lanes);
  return {};
}

}  // namespace tern::client_lib
