#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time_slice.h"
#include "daemon/conductor/client.h"
#include "daemon/conductor/conductor_settings.h"
#include "daemon/conductor/groups.h"
#include "daemon/conductor/kept_states.h"
#include "daemon/conductor/outlets.h"
#include "daemon/conductor/quotas.h"
#include "daemon/conductor/refusals.h"
#include "daemon/tuning/tuning.h"

namespace tern::daemon {

// The declarations of tensors: what ranks agree on, until the last lane has let go.
class TensorRegistry {
 public:
  // Other parts that a declaration concerns. They outlive the registry.
  struct Partners {
    Groups& groups;
    const Quotas& quotas;
    KeptStates& kept;
    Refusals& refusals;
    Tuning* tuning;  // null: `auto` is raw
  };

  // REQUIRES: the settings outlive this; a change of them is seen.
  TensorRegistry(const ConductorSettings& settings, const Outlets& outlets,
                 const Partners& partners)
      : settings_(settings), outlets_(outlets), partners_(partners) {}

  // ---- From clients
  // False: a log of choices is read for it first (Client::reading). The declaration comes again when
  // that is done.
  [[nodiscard]] bool declare(Client& client, const shm::TensorDeclarePacket& packet);
  void release(const Client& client, const shm::TensorReleasePacket& packet);
  void tell_stats(const Client& client, const shm::TensorReleasePacket& packet);
  // How the client of a tensor with client_blocks has to encode.
  void tell_blocks(const Client& client, const shm::TensorReleasePacket& packet);
  // Among which the tuner chooses for it.
  void tell_recipes(const Client& client, const shm::TensorReleasePacket& packet);

  // ---- From lanes
  // A lane has let go of the tensor, as it was told with that release.
  void on_dropped(MemberGroup& group, std::uint64_t id, std::uint32_t release);
  // The rank has left: what it alone holds is released, by release_left().
  void release_all(const MemberGroup& group, const MemberRank& rank) {
    left_.push_back({group.number, group.bit_of(rank), std::nullopt});
  }
  // As long as lanes take commands: releases one tensor of a rank that has left, and others until
  // the slice is over. Returns how many it has looked at.
  int release_left(const TimeSlice& slice);
  bool has_to_release() const { return !left_.empty(); }
  // All lanes have let go of the group: it is forgotten with its tensors, by forget_groups().
  void on_group_removed(const MemberGroup& group) { removed_.push_back(group.number); }
  // Forgets one tensor or name of a group that is removed, and others until the slice is over.
  // Returns how many groups it was at.
  int forget_groups(const TimeSlice& slice);
  bool has_groups_to_forget() const { return !removed_.empty(); }

  // With what the tuner has chosen at present.
  std::string recipe_text(const TensorState& state) const;

 private:
  // One rank's declaration on its way.
  struct Declaration {
    Client& client;
    MemberGroup& group;
    MemberRank& rank;
    const shm::TensorDeclarePacket& packet;
    std::string name;
    std::string replay;  // the log of choices that the recipe names, or empty
    std::shared_ptr<TensorState> state;
    std::shared_ptr<ReplayReading> reading;  // of that log; null: none is needed
  };

  // A rank that has left, and the last tensor of its group that was looked at for it.
  struct LeftRank {
    std::uint64_t group = 0, bit = 0;
    std::optional<std::uint64_t> last;  // none: no tensor yet
  };

  // Of a tensor with client_blocks that the client is a member of; null: there is none, and the
  // client has been told.
  const TensorState* with_blocks(const Client& client,
                                 const shm::TensorReleasePacket& packet) const;
  Status check_rank(const Declaration& declaration) const;
  Status describe(Declaration& declaration) const;
  void leave(const Client& client, std::shared_ptr<ReplayReading>& reading) const;
  Status prepare(Declaration& declaration) const;
  // If the declaration names a log, it gets its reading: the one of before, if that is of the same,
  // or else one that has begun.
  Status read_log(Declaration& declaration, const std::shared_ptr<ReplayReading>& before) const;
  Status take_blocks(Declaration& declaration) const;
  Result<std::string> recipe_of(Declaration& declaration) const;
  Status take(Declaration& declaration);
  Status match(const Declaration& declaration, const DeclaredTensor& other) const;
  Status add(Declaration& declaration);
  Status allocate(const Declaration& declaration, std::uint64_t freed) const;
  // False: there is none left, or they go with their group.
  bool release_next(LeftRank& rank);
  void drop(MemberGroup& group, std::uint64_t id);
  void forget_some(MemberGroup& group, const TimeSlice& slice);
  // Its state is kept, if it is; otherwise the caller has it to dispose of.
  std::shared_ptr<TensorState> forget(MemberGroup& group, DeclaredTensor& tensor);
  // The tensor whose state the key names, if its group is still to be forgotten: the job is back,
  // and goes on with that state.
  void forget_last_of(const std::string& key, const std::string& name);
  void keep(const MemberGroup& group, DeclaredTensor& tensor);
  using States = std::vector<std::shared_ptr<TensorState>>;
  void dispose_of(const MemberGroup& group, States states) const;
  void count_reset(const MemberGroup& group, TensorState& state);

  const ConductorSettings& settings_;
  Outlets outlets_;
  Partners partners_;
  std::deque<LeftRank> left_;
  std::deque<std::uint64_t> removed_;  // groups to be forgotten
};

}  // namespace tern::daemon
