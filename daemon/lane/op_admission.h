#pragma once

// What an entry becomes: an op with a plan and a way to be encoded, or a refusal.

#include <cstdint>
#include <span>
#include <vector>

#include "collective/group_ops.h"
#include "daemon/lane/entry_check.h"
#include "daemon/lane/group_setup.h"
#include "daemon/lane/lane_ops.h"
#include "daemon/lane/op_tuning.h"
#include "shm/layout.h"
#include "wire/op_frames.h"

namespace tern::daemon {

struct Refusal {
  Errc code = Errc::ok;
  const char* text = "";
};
// Of an op that was admitted, and that the group may not take all the same; ok where it has.
Refusal refusal_of(collective::GroupOps::SubmitResult result) noexcept;

class OpAdmission {
 public:
  // Everything given outlives this.
  explicit OpAdmission(const GroupSetup& setup) : setup_(setup) {}

  struct Submitter {
    std::uint32_t rank = 0;  // of the group
    const Region& arena;
    TensorState* tensor = nullptr;  // that the entry names; null: there is none
    // That the entry names; null: there is none of that number.
    const Region* input = nullptr;
    const Region* output = nullptr;
  };
  struct Admitted {
    CheckedEntry checked;  // what is wrong with the entry, if anything is
    LaneOp op;
    ClientEncoding client;  // of an op with slots
    wire::AnnounceBody body{};
    std::span<const std::uint64_t> counts{};  // until the next entry; empty: it has none

    // Its blocks are those of an op that may not be lossy.
    void lose_nothing() noexcept;
    // What its submitter gives to it. REQUIRES: it is no send or recv.
    OpRank rank(const shm::SubmitEntry& entry, const Submitter& submitter) const noexcept;
  };
  // `entry` is foreign, and a copy that its owner cannot change.
  Admitted admit(const shm::SubmitEntry& entry, const Submitter& submitter);

 private:
  // Copies the ranks' counts, which lie where their client can change them. False: they do not lie
  // in its arena.
  bool read_counts(const shm::SubmitEntry& entry, const Region& arena);
  // Null, or why the op cannot be encoded as it asks.
  const char* resolve(const shm::SubmitEntry& entry, const plan::Plan& plan,
                      const TensorState* tensor, ResolvedRecipe& resolved) const;
  // Whether it is of a kind that needs no tensor to be lossy, and asks for it.
  bool loses_without_memory(const plan::Plan& plan, const ResolvedRecipe& resolved,
                            const shm::SubmitEntry& entry) const;
  OpEncoding encoding_of(const shm::SubmitEntry& entry, const plan::Plan& plan,
                         const ResolvedRecipe& resolved, const TensorState* tensor) const;

  const GroupSetup& setup_;
  std::vector<std::uint64_t> counts_;  // of the last entry; empty: it had none
};

}  // namespace tern::daemon
