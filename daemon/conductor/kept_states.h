#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/time_slice.h"
#include "daemon/conductor/conductor_settings.h"
#include "daemon/membership/member_group.h"
#include "daemon/service/disposal.h"

namespace tern::daemon {

// Codec state between two declarations of a tensor: what is kept for the next one, who uses what
// was kept, and what was lost, so that the next declaration is known to begin at zero.
class KeptStates {
 public:
  // REQUIRES: all outlive this; a change of the settings is seen. The disposal frees what is large.
  KeptStates(const ConductorSettings& settings, const Clock& clock, Disposal& disposal)
      : settings_(settings), clock_(clock), disposal_(disposal) {}

  // Whose the values of a tensor are: those of the rows of a mesh are not those of its columns.
  struct Origin {
    std::string job;
    std::string lineage = {};  // of the group
  };
  // Under which the state of a tensor is kept: of each user's job apart.
  static std::string key_of(std::uint32_t user, const Origin& origin, const std::string& name);

  // What is kept under the key for the account, in bytes; of all of one user; and of all.
  std::uint64_t bytes_of(const std::string& key, std::uint32_t account) const;
  std::uint64_t bytes_of_user(std::uint32_t user) const;
  std::uint64_t bytes() const;

  // A tensor is declared. If no other uses the key, its state outlives the declaration, and it
  // takes over what is kept. True: something with a history was lost, now or before.
  bool adopt(const MemberGroup& group, const std::string& key, DeclaredTensor& tensor);
  // A tensor that no lane uses any more: its state is kept, or lost. Of an account as many are kept
  // as it may have tensors, the newest.
  void keep(const MemberGroup& group, const DeclaredTensor& tensor);

  // Forgets one state that nobody has declared again in time, and others until the slice is over.
  // Returns whether that was all.
  bool expire(std::uint64_t now_ns, const TimeSlice& slice);

 private:
  struct Kept {
    std::shared_ptr<TensorState> state;
    std::uint64_t expires_ns = 0;
    std::uint32_t account = 0;  // whose quota it counts against
    std::string group;          // uid of the group that left it
    std::uint64_t bytes = 0;
    std::vector<std::vector<std::uint32_t>> ranks_of_node;  // when it was kept
  };
  using Map = std::map<std::string, Kept>;  // by key
  // By group and tensor, when it is forgotten: a tensor that is declared again in an epoch of this
  // group has been reset.
  using Lost = std::map<std::string, std::uint64_t>;

  // All that is kept of one account.
  struct OfAccount {
    std::uint64_t bytes = 0;
    std::set<std::pair<std::uint64_t, std::string>> by_age;  // when it expires, and its key
  };

  void forget(Map::iterator kept);
  // Its group is told if the tensor is declared again.
  void lose(Map::iterator kept);
  bool take_lost(const MemberGroup& group, const std::string& name);
  void remember_lost(std::uint32_t account, const std::string& group, const std::string& name);

  const ConductorSettings& settings_;
  const Clock& clock_;
  Disposal& disposal_;
  Map kept_;
  std::map<std::uint32_t, OfAccount> accounts_;
  std::set<std::string> used_;          // keys of declared tensors
  std::map<std::uint32_t, Lost> lost_;  // by account
};

}  // namespace tern::daemon
