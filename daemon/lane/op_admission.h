#pragma once

// What an entry becomes: an op with a plan and a way to be encoded, or a refusal.

#include <cstdint>

#include "daemon/lane/entry_check.h"
#include "daemon/lane/group_setup.h"
#include "daemon/lane/lane_ops.h"
#include "shm/layout.h"
#include "wire/op_frames.h"

namespace tern::daemon {

class OpAdmission {
 public:
  // Everything given outlives this.
  explicit OpAdmission(const GroupSetup& setup) : setup_(setup) {}

  struct Submitter {
    std::uint32_t rank = 0;  // of the group
    std::uint64_t arena_bytes = 0;
    TensorState* tensor = nullptr;  // that the entry names; null: there is none
  };
  struct Admitted {
    CheckedEntry checked;  // what is wrong with the entry, if anything is
    LaneOp op;
    wire::AnnounceBody body{};
  };
  // `entry` is foreign, and a copy that its owner cannot change.
  Admitted admit(const shm::SubmitEntry& entry, const Submitter& submitter) const;

 private:
  // Null, or why the op cannot be encoded as it asks.
  const char* resolve(const shm::SubmitEntry& entry, const TensorState* tensor,
                      ResolvedRecipe& resolved) const;
  OpEncoding encoding_of(const shm::SubmitEntry& entry, const plan::Plan& plan,
                         const ResolvedRecipe& resolved, const TensorState* tensor) const;

  const GroupSetup& setup_;
};

}  // namespace tern::daemon
