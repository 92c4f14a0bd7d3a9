#pragma once

// Tensors and ranks that the conductor wants back, until no op of the group uses them any more.

#include <cstdint>
#include <vector>

#include "daemon/lane/group_core.h"

namespace tern::daemon {

class Releases {
 public:
  // `core` outlives this. Events name the group by `group`.
  Releases(GroupCore& core, LaneGroup& group) : core_(core), group_(group) {
    ranks_.reserve(core.setup().local_clients.size());
  }

  void add_tensor(TensorState* tensor, std::uint32_t release) {
    tensors_.push_back({tensor, release});
  }
  // A rank has declared it meanwhile.
  void keep_tensor(const TensorState* tensor) {
    std::erase_if(tensors_, [tensor](const Released& one) { return one.tensor == tensor; });
  }
  void add_rank(std::uint32_t local_rank) { ranks_.push_back(local_rank); }
  // Reports what is free now. Calls forget(local rank) before the conductor hears of a rank, and
  // uses(local rank) for what is no op of the group's. Returns how much that was.
  template <typename Forget, typename Uses>
  int settle(Forget forget, Uses uses) {
    const std::size_t before = tensors_.size() + ranks_.size();
    if (before == 0) return 0;
    EventReports& reports = core_.resources().reports;
    std::erase_if(ranks_, [&](std::uint32_t rank) {
      if (uses_rank(rank) || uses(rank)) return false;
      forget(rank);
      reports.report(event::RankReleased{&group_, rank});
      return true;
    });
    std::erase_if(tensors_, [&](const Released& one) {
      if (uses_tensor(one.tensor)) return false;
      reports.report(event::TensorDropped{&group_, one.tensor, one.release});
      return true;
    });
    return static_cast<int>(before - tensors_.size() - ranks_.size());
  }

 private:
  struct Released {
    TensorState* tensor = nullptr;
    std::uint32_t release = 0;
  };

  bool uses_rank(std::uint32_t local_rank) const noexcept {
    for (collective::OpId op = 0; op < core_.ops().table().slots(); ++op) {
      const OpRank& rank = core_.lane_ops().ranks(op)[local_rank];
      if (core_.ops().table().in_use(op) && rank.present && !rank.told) return true;
    }
    return false;
  }
  bool uses_tensor(const TensorState* tensor) const noexcept {
    for (collective::OpId op = 0; op < core_.ops().table().slots(); ++op) {
      if (core_.ops().table().in_use(op) && core_.lane_op(op).tensor == tensor) return true;
    }
    return false;
  }

  GroupCore& core_;
  LaneGroup& group_;
  std::vector<Released> tensors_;
  std::vector<std::uint32_t> ranks_;  // local
};

}  // namespace tern::daemon
