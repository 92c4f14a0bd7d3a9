#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "daemon/lane/lane.h"
#include "daemon/membership/member_group.h"

namespace tern::daemon {

// The commands to the lanes. A lane's ring has a bound; what does not fit waits here, in order.
class LaneCommands {
 public:
  // wake(i) makes lane i look at its commands. REQUIRES: the lanes outlive this.
  LaneCommands(std::vector<Lane*> lanes, std::function<void(std::uint32_t)> wake);
  // Connections that no lane has adopted are closed.
  ~LaneCommands();
  LaneCommands(const LaneCommands&) = delete;
  LaneCommands& operator=(const LaneCommands&) = delete;

  std::uint32_t lane_count() const { return static_cast<std::uint32_t>(lanes_.size()); }

  void send(std::uint32_t lane, const Command& command);
  void send_to_all(const Command& command);
  // To the lanes of the group; the command's `group` is each one's own.
  template <typename GroupCommand>
  void send_to_group(const MemberGroup& group, GroupCommand command) {
    for (std::uint32_t lane = 0; lane < group.lane_count; ++lane) {
      command.group = group.lanes[lane].get();
      backlog_[lane].push_back(command);
    }
    flush();
  }
  // To those of the group's lanes that `lanes` has as bits.
  void send_fail(const MemberGroup& group, std::uint32_t lanes, command::FailOp command);

  // Hands over what has room by now, and says how much.
  int flush();
  bool has_backlog() const;

 private:
  std::vector<Lane*> lanes_;
  std::function<void(std::uint32_t)> wake_;
  std::vector<std::deque<Command>> backlog_;  // by lane
};

}  // namespace tern::daemon
