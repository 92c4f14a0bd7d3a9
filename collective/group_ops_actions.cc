// The choice of the next action, and what follows from one that is done.

#include <algorithm>

#include "base/check.h"
#include "collective/group_ops.h"
#include "collective/op_sets.h"

namespace tern::collective {
namespace {

// Of the kinds that an op has one at a time of; the others Legs tells apart.
Action of_op(OpId id, Op& op, ActionKind kind) noexcept {
  op.issued |= bit(static_cast<std::uint32_t>(kind));
  ++op.in_flight;
  return {.kind = kind, .op = id};
}

}  // namespace

void GroupOps::start(OpId id) {
  Op& op = ops_[id];
  op.stage = Stage::running;
  schedule_.run(id, op);
  if (!op.is_eager()) end_if_delivered(id);
}

void GroupOps::end_if_delivered(OpId id) {
  Op& op = ops_[id];
  if (!op.has_started() || op.failed() || op.steps_left != 0) return;
  schedule_.stop(id);
  const bool one_rank = nodes() * shape_.local_ranks() == 1;
  if (!shape_.verify || !op.plan->alike || one_rank) return schedule_.complete(id);
  op.stage = Stage::verifying;
  schedule_.run_last(id, op);
}

Action GroupOps::next(const Room& room, const InputGate& inputs) {
  if (const OpId id = schedule_.take_fail_remote(); id != kNoSlot) {
    return of_op(id, ops_[id], ActionKind::fail_remote);
  }
  const auto in_flight = [this](OpId id) { return ops_[id].in_flight != 0; };
  if (const OpId id = schedule_.take_complete(in_flight); id != kNoSlot) {
    schedule_.stop(id);
    legs_.free_chunks(id);
    ops_[id].ending = Ending::completing;
    return {.kind = ActionKind::complete, .op = id};
  }
  if (const OpId id = schedule_.take_tell_submitted(); id != kNoSlot) {
    ops_[id].submitted_told = ops_[id].submitted;
    return of_op(id, ops_[id], ActionKind::tell_submitted);
  }
  // Until a failed op is released, what it had parked lies where the tensor's next one would look
  // for its residual, and blocks of it that are under way may write there.
  const auto holds_state = [this](OpId other) {
    const Op& op = ops_[other];
    return op.failed() && !op.is_remembered() &&
           (op.in_flight != 0 || !legs_.parked(other).empty());
  };
  // What travels with its announcement is read for it.
  const auto may_speak = [&](OpId id) {
    const auto uses = ops_.uses(ops_[id].key.tensor);
    if (std::any_of(uses.begin(), uses.end(), holds_state)) return false;
    return (!ops_[id].is_eager() && !ops_[id].announces_chunks()) || inputs.has_all(id);
  };
  if (const OpId id = schedule_.take_announce(may_speak); id != kNoSlot) {
    return of_op(id, ops_[id], ActionKind::announce);
  }
  for (const auto& [id, priority, order] : schedule_.running()) {
    Op& op = ops_[id];
    if (op.is_verifying() || op.is_eager()) {
      const ActionKind kind = op.is_verifying() ? ActionKind::verify : ActionKind::reduce_eager;
      const bool verified = op.is_verifying() && (op.verified & bit(shape_.node)) != 0;
      if (!verified && !op.is_issued(kind)) return of_op(id, op, kind);
      continue;
    }
    const Action action = legs_.next(id, op, {room, inputs});
    if (action.kind == ActionKind::none) continue;
    ++op.in_flight;
    return action;
  }
  return {};
}

void GroupOps::done(const Action& action) {
  const OpId id = action.op;
  Op& op = ops_[id];
  TERN_CHECK(op.in_flight > 0 && action.kind != ActionKind::complete);
  --op.in_flight;
  op.issued &= ~bit(static_cast<std::uint32_t>(action.kind));
  switch (action.kind) {
    case ActionKind::announce:
      op.announced |= bit(shape_.node);
      if (!op.failed() && op.announced == low_bits(nodes())) start(id);
      return;
    case ActionKind::reduce_eager:
      return end_if_delivered(id);
    case ActionKind::verify:
      op.verified |= bit(shape_.node);
      if (!op.failed() && op.verified == low_bits(nodes())) schedule_.complete(id);
      return;
    case ActionKind::none:
    case ActionKind::fail_remote:
    case ActionKind::tell_submitted:
    case ActionKind::complete:
      return;
    case ActionKind::grant:
    case ActionKind::scan:
    case ActionKind::contribute:
    case ActionKind::begin:
    case ActionKind::begin_add:
    case ActionKind::add:
    case ActionKind::finish:
    case ActionKind::finish_parked:
    case ActionKind::publish:
    case ActionKind::send_on: {
      const std::uint32_t steps = legs_.done(action, op);
      if (steps == 0 || op.failed()) return;
      op.steps_left -= steps;
      return end_if_delivered(id);
    }
  }
}

void GroupOps::parked(const Action& finish) {
  TERN_CHECK(finish.kind == ActionKind::finish && ops_[finish.op].in_flight > 0);
  --ops_[finish.op].in_flight;
  legs_.park(finish);
}

void GroupOps::release(OpId id) {
  Op& op = ops_[id];
  TERN_CHECK(ops_.in_use(id) && op.is_completing());
  const std::uint64_t tensor = op.key.tensor;
  if (op.failed() && !ended() && !ops_.superseded(op.key) && !ops_.is_dropped(tensor) &&
      departures_.others_may_come(op.submitted, shape_.local_ranks())) {
    // It stays until all local ranks have come to it, or to a later use of the tensor.
    ops_.remember(id);
  } else {
    if (op.submitted != 0) --counts_.in_flight;
    if (!op.failed() && shape_.counts(op.key.tensor, op.key.sequence)) ++counts_.completed;
    shares_.give(op.share_begins);
    pairs_.give(op.pairs);
    ops_.remove(id);
    legs_.forget(id);
  }
  if (tensor == 0) return;
  // The next use of the tensor may have waited for this one.
  const OpId next = ops_.earliest_use(tensor);
  if (next != kNoSlot && ops_[next].submitted == low_bits(shape_.local_ranks()) &&
      !ops_[next].has_spoken(shape_.node)) {
    schedule_.announce(next);
  }
}

}  // namespace tern::collective
