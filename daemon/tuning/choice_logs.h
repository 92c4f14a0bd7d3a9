#pragma once

// Logs of choices (tuner/choice_log.h) in a directory: one for each epoch of a group and each of
// its nodes, written as the tuner chooses and replayed in a later run.

#include <cstdint>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "daemon/membership/member_group.h"
#include "daemon/service/user_log.h"
#include "daemon/tensor/tensor_state.h"
#include "daemon/tensor/tensor_tuning.h"
#include "tuner/choice_log.h"
#include "tuner/tuner.h"

namespace tern::daemon {

class ChoiceLogs {
 public:
  // `directory`: empty, and none are written or replayed. Candidates and log outlive this.
  ChoiceLogs(std::string directory, std::span<const tuner::Candidate> candidates, UserLog& log)
      : directory_(std::move(directory)), candidates_(candidates), log_(log) {}

  // ---- Written. A log that cannot be written ends, and the daemon's log says so once. ----
  // Whether the group's epoch has one now. It is made the first time; none is overwritten.
  bool open(const MemberGroup& group) { return log_of(group) != nullptr; }
  void write(const MemberGroup& group, const tuner::LoggedOp& op);
  void write(const MemberGroup& group, const tuner::LoggedChunk& chunk);
  void end(const MemberGroup& group) { logs_.erase(group.number); }

  // ---- Replayed ----
  // One declaration that names a log.
  struct Replay {
    const std::string& name;
    const MemberGroup& group;
    const TensorState& state;
    std::uint32_t unusable = 0;  // candidates that the tensor cannot have, as bits
  };
  // What it says of the tensor, by lane.
  Result<std::vector<ReplayedLane>> read(const Replay& replay) const;

 private:
  std::ofstream* log_of(const MemberGroup& group);  // null: there is none
  Result<tuner::ChoiceLog> parse(const Replay& replay) const;
  // Of the candidate with this recipe; the number of candidates: none has it.
  std::size_t index_of(const std::string& recipe) const;
  Status read_op(const Replay& replay, const tuner::LoggedOp& op, ReplayedLane& lane) const;

  std::string directory_;
  std::span<const tuner::Candidate> candidates_;
  UserLog& log_;
  std::map<std::uint64_t, std::ofstream> logs_;  // by group number
};

}  // namespace tern::daemon
