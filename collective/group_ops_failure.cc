// How ops fail: here, on another node, with a rank or with the group.

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "collective/group_ops.h"
#include "collective/op_sets.h"

namespace tern::collective {
namespace {

void copy_text(std::span<char> out, std::string_view text) noexcept {
  const std::size_t bytes = std::min(text.size(), out.size() - 1);
  std::memcpy(out.data(), text.data(), bytes);
  out[bytes] = '\0';
}

}  // namespace

// ---- Failure ------------------------------------------------------------------------------------

void GroupOps::fail_here(OpId id, Errc code, std::uint32_t about_rank, std::string_view text) {
  Op& op = ops_[id];
  if (op.failed || op.completing) return;
  op.failed = true;
  op.status = code;
  op.about_rank = about_rank;
  copy_text(op.text, text);
  running_.erase(std::remove(running_.begin(), running_.end(), id), running_.end());
  to_announce_.erase(std::remove(to_announce_.begin(), to_announce_.end(), id), to_announce_.end());
  to_tell_.erase(std::remove(to_tell_.begin(), to_tell_.end(), id), to_tell_.end());
  if (std::find(to_complete_.begin(), to_complete_.end(), id) == to_complete_.end()) {
    to_complete_.push_back(id);
  }
}

// For the memory of a failure, when a rank has come or nobody is waited for any more. If the op is
// being completed, the rank that came is told then.
void GroupOps::complete_again(OpId id) {
  if (ops_[id].completing) return;
  if (std::find(to_complete_.begin(), to_complete_.end(), id) == to_complete_.end()) {
    to_complete_.push_back(id);
  }
}

void GroupOps::fail(OpId id, Errc code, std::uint32_t about_rank, std::string_view text) {
  if (ops_[id].failed || ops_[id].completing) return;
  fail_here(id, code, about_rank, text);
  if (nodes_ > 1 && !ended_) to_fail_remote_.push_back(id);
}

void GroupOps::on_op_fail(std::uint32_t, const OpKey& key, Errc code, std::uint32_t about_rank,
                          std::string_view text) {
  fail_key(key, code, about_rank, text, false);
}

void GroupOps::fail_key(const OpKey& key, Errc code, std::uint32_t about_rank,
                        std::string_view text, bool tell_others) {
  OpId id = find(key);
  if (id == kNoOp) {
    if (superseded(key) || ended_) return;
    id = create(key);
    if (id == kNoOp) return;
  }
  if (tell_others) {
    fail(id, code, about_rank, text);
  } else {
    fail_here(id, code, about_rank, text);
  }
}

void GroupOps::on_rank_left(std::uint32_t local_rank) {
  left_local_ |= bit(local_rank);
  const std::uint32_t rank = shape_.ranks[shape_.node][local_rank];
  char text[64];
  std::snprintf(text, sizeof(text), "rank %u has left the group", rank);
  for (OpId id = 0; id < ops_.size(); ++id) {
    if (!used_[id] || ops_[id].completing) continue;
    if (ops_[id].failed && !still_expected(ops_[id])) complete_again(id);
    // Also what it has submitted: its memory is the application's again.
    fail(id, Errc::group_left, rank, text);
  }
}

void GroupOps::end(Errc code, std::string_view text) {
  if (ended_) return;
  ended_ = true;
  end_code_ = code;
  copy_text(end_text_, text);
  to_fail_remote_.clear();
  for (OpId id = 0; id < ops_.size(); ++id) {
    if (!used_[id]) continue;
    if (ops_[id].failed) complete_again(id);  // release() forgets it now
    fail_here(id, code, kNobody, text);
  }
}

void GroupOps::expire(std::uint64_t now_ns, std::uint64_t timeout_ns) {
  for (OpId id = 0; id < ops_.size(); ++id) {
    if (!used_[id]) continue;
    const Op& op = ops_[id];
    if (op.failed || op.started || op.completing || op.submitted == 0) continue;
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
    fail(id, Errc::op_timeout, count > 0 ? missing[0] : kNobody, text);
  }
}

void GroupOps::tell_late(std::uint64_t now_ns, std::uint64_t after_ns) {
  if (nodes_ == 1 || local_ranks_ == 1 || ended_) return;
  for (OpId id = 0; id < ops_.size(); ++id) {
    if (!used_[id]) continue;
    const Op& op = ops_[id];
    if (op.failed || op.submitted == op.told || op.submitted == all_local()) continue;
    if (now_ns - op.first_submit_ns < after_ns) continue;
    if (std::find(to_tell_.begin(), to_tell_.end(), id) == to_tell_.end()) to_tell_.push_back(id);
  }
}

}  // namespace tern::collective
