#pragma once

// How many ops of a group are in flight on one lane and what they wait for, for the conductor.

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/group_ops.h"
#include "daemon/lane/group_setup.h"
#include "daemon/lane/snapshot_table.h"

namespace tern::daemon {

class OpGauges {
 public:
  // ---- Thread: any ----
  std::uint32_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  std::uint64_t completed() const { return completed_.load(std::memory_order_relaxed); }
  std::vector<WaitingOp> waiting() const { return waiting_.read(); }

  // ---- Thread: the lane's ----
  void publish(const collective::GroupOps& ops) {
    in_flight_.store(ops.ops_in_flight(), std::memory_order_relaxed);
    completed_.store(ops.ops_completed(), std::memory_order_relaxed);
    std::array<WaitingOp, kRows> rows;
    std::size_t count = 0;
    for (collective::OpId op = 0; op < ops.slots() && count < kRows && ops.live_ops() > 0; ++op) {
      const auto& waiting = ops.op(op);
      if (!ops.in_use(op) || waiting.started || waiting.failed || waiting.submitted == 0) continue;
      WaitingOp& row = rows[count++];
      row.tensor = waiting.key.tensor;
      row.sequence = waiting.key.sequence;
      row.kind = waiting.announced_first.kind;
      row.since_ns = waiting.first_submit_ns;
      row.missing = ops.missing_ranks(op, row.ranks);
    }
    waiting_.write(std::span(rows).first(count));
  }

 private:
  static constexpr std::size_t kRows = 16;

  std::atomic<std::uint32_t> in_flight_{0};
  std::atomic<std::uint64_t> completed_{0};
  SnapshotTable<WaitingOp, kRows> waiting_;
};

}  // namespace tern::daemon
