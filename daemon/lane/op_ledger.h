#pragma once

// What is written down of an op that has ended: counters, the tensor's figures, a line for the
// flight recorder and the tuner, events of a trace.

#include <cstdint>

#include "daemon/lane/group_core.h"
#include "daemon/lane/op_blocks.h"
#include "daemon/lane/op_tuning.h"

namespace tern::daemon {

class OpLedger {
 public:
  // Everything given outlives this. Events name the group by `group`.
  OpLedger(GroupCore& core, OpBlocks& blocks, const OpTuning& tuning, LaneGroup& group)
      : core_(core), blocks_(blocks), tuning_(tuning), group_(group) {}

  struct Ending {
    Errc code = Errc::ok;
    const char* text = "";
    std::uint64_t now_ns = 0;
  };
  // Before the ranks are told: what they may ask for at once.
  void count(collective::OpId op, const Ending& ending);
  // After that. Of an op that no rank here has submitted nothing is said.
  void record(collective::OpId op, const Ending& ending);

 private:
  std::uint64_t elements_of(collective::OpId op) const;
  void count_tensor(collective::OpId op, std::uint64_t now_ns);
  void trace(collective::OpId op, const Ending& ending);
  bool is_surprising(const LaneOp& op, std::uint64_t now_ns) const;

  GroupCore& core_;
  OpBlocks& blocks_;
  const OpTuning& tuning_;
  LaneGroup& group_;
};

}  // namespace tern::daemon
