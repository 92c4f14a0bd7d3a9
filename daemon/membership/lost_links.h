#pragma once

#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "base/time_slice.h"
#include "daemon/membership/control_frames.h"
#include "daemon/membership/coordinated_groups.h"

namespace tern::daemon {

// Links that are lost, until each group has heard of it. There may be thousands of groups, with
// many nodes each, and many links may go at once: groups hear of them one after the other.
class LostLinks {
 public:
  void add(LinkRef link, const std::string& why) { waiting_.emplace(link, why); }
  // Every group has heard of all of them.
  bool empty() const { return told_.empty() && waiting_.empty(); }
  // Why it is lost. Null: it is not, or every group has heard of it.
  const std::string* why(LinkRef link) const {
    for (const ByLink* const links : {&told_, &waiting_}) {
      if (const auto found = links->find(link); found != links->end()) return &found->second;
    }
    return nullptr;
  }

  // Calls hear(uid, group) for a group that has not heard, and for others until the slice is over.
  // `hear` may have the group forgotten, and no other.
  template <typename Hear>
  void tell(CoordinatedGroups& groups, const TimeSlice& slice, const Hear& hear) {
    if (told_.empty()) {
      told_.swap(waiting_);
      next_.clear();
    }
    if (told_.empty()) return;
    for (auto at = groups.from(next_); at != groups.end();) {
      const auto after = std::next(at);
      hear(std::string(at->first), at->second);
      at = after;
      if (!slice.is_over() || at == groups.end()) continue;
      next_ = at->first;
      return;
    }
    told_.clear();
  }

 private:
  using ByLink = std::map<LinkRef, std::string>;

  ByLink told_;       // groups are hearing of them
  ByLink waiting_;    // lost since these began to
  std::string next_;  // the uid from which on groups have not heard of `told_`
};

}  // namespace tern::daemon
