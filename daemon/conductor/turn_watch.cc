#include "daemon/conductor/turn_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace tern::daemon {
namespace {

constexpr std::uint64_t kTurnBudgetNs = 20'000'000;
constexpr const char* kConductor = "conductor";

std::string name_of_lane(std::size_t lane) { return "lane " + std::to_string(lane); }

}  // namespace

TurnWatch::TurnWatch(const Clock& clock, const CounterPlace& counters, std::vector<Lane*> lanes)
    : clock_(clock),
      counters_(counters),
      lanes_(std::move(lanes)),
      own_(clock, kTurnBudgetNs),
      told_(lanes_.size(), 0) {
  own_.count_in(*counters_);
}

const TurnMeter::Turn& TurnWatch::end() {
  const TurnMeter::Turn& turn = own_.end();
  if (turn.is_too_long) tell(kConductor, turn);
  std::uint64_t longest_ns = 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const std::uint64_t too_long =
        lanes_[i]->counters().turns_over_budget.load(std::memory_order_relaxed);
    if (std::exchange(told_[i], too_long) != too_long) {
      tell(name_of_lane(i), lanes_[i]->turns().last_too_long());
    }
    longest_ns = std::max(longest_ns, lanes_[i]->turns().longest().ns);
  }
  counters_->conductor_longest_turn_ns.store(own_.longest().ns, std::memory_order_relaxed);
  counters_->lane_longest_turn_ns.store(longest_ns, std::memory_order_relaxed);
  return turn;
}

void TurnWatch::tell(const std::string& thread, const TurnMeter::Turn& turn) {
  if (limit_.admits(thread, clock_.now_ns())) spdlog::warn("{}", turn_text(thread, turn));
}

std::string TurnWatch::longest_text() const {
  std::string text = turn_text(kConductor, own_.longest());
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    text += ", " + turn_text(name_of_lane(i), lanes_[i]->turns().longest());
  }
  return text;
}

}  // namespace tern::daemon
