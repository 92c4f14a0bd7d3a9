#pragma once

// How many ops of a group are in flight on one lane and what they wait for, for the conductor.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/group_ops.h"
#include "collective/mailbox.h"
#include "collective/op_sets.h"
#include "daemon/lane/group_setup.h"
#include "daemon/lane/snapshot_table.h"

namespace tern::daemon {

class OpGauges {
 public:
  // ---- Thread: any ----
  std::uint32_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  // Those of them that this lane counts (GroupShape::counts): over all lanes each is one.
  std::uint32_t counted_in_flight() const {
    return counted_in_flight_.load(std::memory_order_relaxed);
  }
  std::uint64_t counted_completed() const {
    return counted_completed_.load(std::memory_order_relaxed);
  }
  std::vector<WaitingOp> waiting() const { return waiting_.read(); }

  // ---- Thread: the lane's ----
  void publish(const collective::GroupOps& ops, const collective::Mailbox& mailbox) {
    in_flight_.store(ops.counts().in_flight + mailbox.in_flight(), std::memory_order_relaxed);
    counted_in_flight_.store(counted(ops) + mailbox.in_flight(), std::memory_order_relaxed);
    counted_completed_.store(ops.counts().completed + mailbox.completed(),
                             std::memory_order_relaxed);
    Longest longest;
    for (collective::OpId op = 0; op < ops.table().slots() && ops.table().live() > 0; ++op) {
      const auto& waiting = ops.op(op);
      if (!ops.table().in_use(op) || waiting.has_started() || waiting.failed() ||
          waiting.submitted == 0)
        continue;
      const bool all_here = waiting.submitted == collective::low_bits(ops.shape().local_ranks());
      if (all_here && ops.table().waits_for_running_use(op)) continue;
      WaitingOp* const row = longest.row_since(waiting.first_submit_ns);
      if (row == nullptr) continue;
      row->tensor = waiting.key.tensor;
      row->sequence = waiting.key.sequence;
      row->kind = waiting.announced_first.kind;
      row->missing = ops.missing_ranks(op, row->ranks);
    }
    for (collective::PassId id = 0; id < mailbox.slots() && mailbox.in_flight() > 0; ++id) {
      if (!mailbox.in_use(id)) continue;
      const collective::Pass& pass = mailbox.pass(id);
      if (pass.state != collective::PassState::waiting) continue;
      const std::uint32_t other =
          pass.what.sends ? pass.what.envelope.destination : pass.what.envelope.source;
      WaitingOp* const row = longest.row_since(pass.what.now_ns);
      if (row == nullptr) continue;
      row->sequence = pass.what.envelope.tag;
      row->kind = pass.what.kind;
      if (other != collective::kAnySource) row->ranks[row->missing++] = other;
    }
    waiting_.write(longest.rows());
  }

 private:
  static constexpr std::size_t kRows = 16;

  // Rows of those that have waited longest.
  class Longest {
   public:
    // For one that has waited since then. Null: all rows are of older ones.
    WaitingOp* row_since(std::uint64_t since_ns) noexcept {
      WaitingOp* row = rows_.data() + count_;
      if (count_ < kRows) {
        ++count_;
      } else {
        row = std::max_element(rows_.data(), row, [](const WaitingOp& one, const WaitingOp& other) {
          return one.since_ns < other.since_ns;
        });
        if (row->since_ns <= since_ns) return nullptr;
      }
      *row = {};
      row->since_ns = since_ns;
      return row;
    }
    std::span<const WaitingOp> rows() const noexcept { return std::span(rows_).first(count_); }

   private:
    std::array<WaitingOp, kRows> rows_;
    std::size_t count_ = 0;
  };

  static std::uint32_t counted(const collective::GroupOps& ops) {
    if (ops.shape().lanes == 1 || ops.counts().in_flight == 0) return ops.counts().in_flight;
    std::uint32_t count = 0;
    for (collective::OpId op = 0; op < ops.table().slots(); ++op) {
      if (!ops.table().in_use(op) || ops.op(op).submitted == 0) continue;
      const collective::OpKey& key = ops.op(op).key;
      count += ops.shape().counts(key.tensor, key.sequence) ? 1 : 0;
    }
    return count;
  }

  std::atomic<std::uint32_t> in_flight_{0};
  std::atomic<std::uint32_t> counted_in_flight_{0};
  std::atomic<std::uint64_t> counted_completed_{0};
  SnapshotTable<WaitingOp, kRows> waiting_;
};

}  // namespace tern::daemon
