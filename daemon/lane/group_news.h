#pragma once

#include <utility>

namespace tern::daemon {

// What the lane has told the conductor of a group once, and what the conductor has asked for.
class GroupNews {
 public:
  bool is_ready() const noexcept { return ready_; }
  // All links are open.
  void tell_ready() noexcept { ready_ = true; }
  // True of the first link that is lost: the epoch ends by it.
  bool tell_loss() noexcept { return !std::exchange(lost_, true); }
  // The conductor wants the group back when nothing refers to it any more.
  void let_go() noexcept { let_go_ = true; }
  bool is_let_go() const noexcept { return let_go_; }

 private:
  bool ready_ = false, lost_ = false, let_go_ = false;
};

}  // namespace tern::daemon
