#include "daemon/conductor/lane_commands.h"

#include <algorithm>
#include <memory>
#include <variant>

namespace tern::daemon {

LaneCommands::LaneCommands(std::vector<Lane*> lanes, std::function<void(std::uint32_t)> wake)
    : lanes_(std::move(lanes)), wake_(std::move(wake)), backlog_(lanes_.size()) {}

LaneCommands::~LaneCommands() {
  for (const auto& backlog : backlog_) {
    for (const Command& command : backlog) {
      if (const auto* adopt = std::get_if<command::AdoptConnection>(&command)) {
        const std::unique_ptr<net::Incoming> never_adopted(adopt->incoming);
      }
    }
  }
}

void LaneCommands::send(std::uint32_t lane, const Command& command) {
  backlog_[lane].push_back(command);
  flush();
}

void LaneCommands::send_to_all(const Command& command) {
  for (auto& backlog : backlog_) backlog.push_back(command);
  flush();
}

void LaneCommands::send_fail(const MemberGroup& group, std::uint32_t lanes,
                             command::FailOp command) {
  for (std::uint32_t lane = 0; lane < group.lane_count; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    command.group = group.lanes[lane].get();
    backlog_[lane].push_back(command);
  }
  flush();
}

int LaneCommands::flush() {
  int sent = 0;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    auto& backlog = backlog_[lane];
    const int before = sent;
    while (!backlog.empty() && lanes_[lane]->commands().push(backlog.front())) {
      backlog.pop_front();
      ++sent;
    }
    if (sent != before) wake_(lane);
  }
  return sent;
}

bool LaneCommands::has_backlog() const {
  return std::any_of(backlog_.begin(), backlog_.end(),
                     [](const auto& backlog) { return !backlog.empty(); });
}

}  // namespace tern::daemon
