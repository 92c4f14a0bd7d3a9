#pragma once

// The groups of a coordinator by their uids, and which of them go where there is room for no more.
// Minted ones, and those that ranks of this node know, are charged to users. Strangers are groups
// that only joins of other nodes speak of, as after a restart of this daemon; they are charged to
// where the joins come from.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"
#include "daemon/membership/coordinated_group.h"
#include "daemon/membership/group_id.h"
#include "daemon/service/shared_places.h"

namespace tern::daemon {

class CoordinatedGroups {
 public:
  using ByUid = std::map<std::string, CoordinatedGroup>;  // hex

  // The known ones and the strangers.
  static constexpr std::size_t kMostGroups = 4096;
  // Beyond, the user's own oldest group goes in which nobody is, as after a mint.
  static constexpr std::size_t kPerUser = 1024;
  static constexpr SharedPlaces::Bounds kStrangers{2048, 256};
  // Groups of a user, children of splits and minted ones together, beyond which nothing is split:
  // the largest group and the split of it into single ranks.
  static constexpr std::size_t kPerUserWhoSplits = 2 * kPerUser;

  CoordinatedGroup* find(const std::string& uid);
  const CoordinatedGroup* find(const std::string& uid) const;
  // REQUIRES: there is one.
  CoordinatedGroup& at(const std::string& uid) { return by_uid_.at(uid); }
  ByUid::iterator begin() { return by_uid_.begin(); }
  ByUid::iterator end() { return by_uid_.end(); }
  // From the first whose uid is not less.
  ByUid::iterator from(const std::string& uid) { return by_uid_.lower_bound(uid); }
  ByUid::const_iterator begin() const { return by_uid_.begin(); }
  ByUid::const_iterator end() const { return by_uid_.end(); }
  std::size_t size() const { return by_uid_.size(); }
  std::size_t of_user(std::uint32_t user) const;

  // A rank of this user joins here, or the user has minted it; who was first is charged. True:
  // nobody here had known it.
  bool learn(const GroupId& id, std::uint32_t user);
  // A join speaks of it. One of this node's finds a place always; of another, `source` says where
  // it came from.
  void add_own(const std::string& uid) { by_uid_.try_emplace(uid); }
  Status add_stranger(const std::string& uid, const std::string& source);
  // Children of splits that have no group yet.
  struct Children {
    std::size_t of_user = 0, of_all = 0;
  };
  // For these, which are in use from the beginning, so that none of them goes to make room for
  // another. False: there is none.
  bool make_room_for_children(std::uint32_t user, const Children& children);

  // REQUIRES of both: there is one.
  void forget(const std::string& uid);
  CoordinatedGroup take(const std::string& uid);
  // Those in which nobody is and which nobody can come back to.
  void forget_unused();
  void forget_if_unused(const std::string& uid);

 private:
  // In the order of their last use. Looking for one that is idle must not cost a search by uid for
  // each that is not.
  using ByUse = std::map<std::uint64_t, ByUid::const_pointer>;

  bool make_room();
  bool forget_oldest_idle(std::uint32_t user);
  void uncharge(const CoordinatedGroup& group);

  SharedPlaces strangers_{kStrangers};  // outlives the groups
  ByUid by_uid_;
  std::map<std::uint32_t, ByUse> of_users_;  // the known ones
  std::uint64_t uses_ = 0;
};

}  // namespace tern::daemon
