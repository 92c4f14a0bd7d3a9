// How ops fail: here, on another node, with a rank or with the group.

#include <algorithm>
#include <cstdio>

#include "collective/group_ops.h"
#include "collective/op_sets.h"

namespace tern::collective {

void GroupOps::fail_here(OpId id, const Failure& failure) {
  Op& op = ops_[id];
  if (op.failed() || op.is_completing()) return;
  op.status = failure.code;
  op.about_rank = failure.about_rank;
  const std::size_t bytes = failure.text.copy(op.text, sizeof(op.text) - 1);
  op.text[bytes] = '\0';
  schedule_.drop(id);
  schedule_.complete(id);
}

void GroupOps::fail(OpId id, const Failure& failure) {
  if (ops_[id].failed() || ops_[id].is_completing()) return;
  fail_here(id, failure);
  if (nodes() > 1 && !ended()) schedule_.fail_remote(id);
}

void GroupOps::complete_failed(OpId id) {
  ops_.recall(id);
  schedule_.complete(id);
}

// A rank submits a tensor's uses in their order: who has submitted one will not submit an earlier
// one.
void GroupOps::forget_failed(std::uint64_t tensor, std::uint64_t below) {
  if (ops_.remembered() == 0) return;
  for (const OpId id : ops_.uses(tensor)) {
    if (ops_[id].is_remembered() && ops_[id].key.sequence < below) complete_failed(id);
  }
}

void GroupOps::drop_tensor(std::uint64_t tensor) {
  ops_.drop_tensor(tensor);
  forget_failed(tensor, ~std::uint64_t{0});
  const std::uint32_t rank = shape_.ranks[shape_.node][0];
  const auto text = released_text(rank);
  for (const OpId id : ops_.uses(tensor)) {
    // The other nodes would wait for this one.
    if (ops_[id].submitted != low_bits(shape_.local_ranks())) {
      fail(id, {Errc::cancelled, rank, text.data()});
    }
  }
}

void GroupOps::on_op_fail(const OpKey& key, const Failure& failure) {
  const OpId id = ended() ? ops_.find(key) : ops_.find_or_create(key);
  if (id != kNoSlot) fail_here(id, failure);
}

void GroupOps::fail_key(const OpKey& key, const Failure& failure) {
  const OpId id = ended() ? ops_.find(key) : ops_.find_or_create(key);
  if (id != kNoSlot) fail(id, failure);
}

void GroupOps::on_rank_left(std::uint32_t local_rank) {
  departures_.leave(local_rank);
  const std::uint32_t rank = shape_.ranks[shape_.node][local_rank];
  const auto text = left_text(rank);
  for (OpId id = 0; id < ops_.slots(); ++id) {
    if (!ops_.in_use(id) || ops_[id].is_completing()) continue;
    // The memory of a failure that nobody is expected to hear of any more.
    const bool expected = departures_.others_may_come(ops_[id].submitted, shape_.local_ranks());
    if (ops_[id].failed() && !expected) complete_failed(id);
    // Also what it has submitted: its memory is the application's again.
    fail(id, {Errc::group_left, rank, text.data()});
  }
}

void GroupOps::end(Errc code, std::string_view text) {
  if (!departures_.end(code, text)) return;
  schedule_.tell_no_failures();
  for (OpId id = 0; id < ops_.slots(); ++id) {
    if (!ops_.in_use(id)) continue;
    // The memory of a failure too: release() forgets it now.
    if (ops_[id].failed() && !ops_[id].is_completing()) complete_failed(id);
    fail_here(id, {code, kNoRank, text});
  }
}

void GroupOps::expire(std::uint64_t now_ns, std::uint64_t timeout_ns) {
  for (OpId id = 0; id < ops_.slots(); ++id) {
    if (!ops_.in_use(id)) continue;
    const Op& op = ops_[id];
    if (op.failed() || op.has_started() || op.is_completing() || op.submitted == 0) continue;
    if (ops_.waits_for_running_use(id)) {
      // Half of its time is left when that has ended.
      const std::uint64_t half_ns = timeout_ns / 2;
      if (now_ns - op.first_submit_ns > half_ns) ops_[id].first_submit_ns = now_ns - half_ns;
      continue;
    }
    if (now_ns - op.first_submit_ns < timeout_ns) continue;
    std::uint32_t missing[16];
    const std::size_t count = missing_ranks(id, missing);
    char text[sizeof(Op::text)];
    int used = std::snprintf(text, sizeof(text), "after %llu ms not submitted by rank",
                             static_cast<unsigned long long>(timeout_ns / 1'000'000));
    for (std::size_t i = 0; i < std::min<std::size_t>(count, 16) && used < 170; ++i) {
      used += std::snprintf(text + used, sizeof(text) - static_cast<std::size_t>(used), "%s %u",
                            i == 0 ? "" : ",", missing[i]);
    }
    fail(id, {Errc::op_timeout, count > 0 ? missing[0] : kNoRank, text});
  }
}

void GroupOps::tell_late(std::uint64_t now_ns, std::uint64_t after_ns) {
  if (nodes() == 1 || shape_.local_ranks() == 1 || ended()) return;
  for (OpId id = 0; id < ops_.slots(); ++id) {
    if (!ops_.in_use(id)) continue;
    const Op& op = ops_[id];
    const bool all_here = op.submitted == low_bits(shape_.local_ranks());
    if (op.failed() || op.submitted == op.submitted_told || all_here) continue;
    if (op.is_issued(ActionKind::tell_submitted)) continue;
    if (now_ns - op.first_submit_ns >= after_ns) schedule_.tell_submitted(id);
  }
}

}  // namespace tern::collective
