#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "daemon/lane/lane_clients.h"
#include "daemon/lane/lane_exchange.h"
#include "daemon/lane/state_upkeep.h"

namespace tern::daemon {

// The moves of codec state that a lane was asked for: chunk by chunk, each move in its turn, and
// beside the ops of other jobs only for a job's share of the lane's time. Thread: the lane's.
class StateMoveQueue {
 public:
  StateMoveQueue(const Clock& clock, LaneClients& clients, EventReports& reports)
      : clock_(clock), clients_(clients), reports_(reports) {}

  // What the clients have submitted before somebody asked for the state counts as in flight. It is
  // taken in its turn, because it may speak of tensors in commands that come after this one.
  void add(const command::MoveState& command);
  // Moves a chunk, if it is time: `active_jobs` share the lane. Returns the amount of work done.
  int do_work(std::size_t active_jobs);
  bool empty() const noexcept { return waiting_.empty(); }
  // When do_work() has something to do again; 0: nothing waits, or what waits is not for time.
  std::uint64_t deadline_ns() const noexcept {
    return waiting_.empty() || clients_.has_older_than_move() ? 0 : next_ns_;
  }

  // Ends the moves whose tensor, group or client goes. REQUIRES: they are still there.
  template <typename Which>
  void cancel(Which which);

 private:
  struct Waiting {
    command::MoveState command;
    StateUpkeep::MoveProgress progress;
  };

  void report(const Waiting& one, Errc code, const Sentence& text);

  const Clock& clock_;
  LaneClients& clients_;
  EventReports& reports_;
  std::vector<Waiting> waiting_;  // the first has its turn next
  std::uint64_t next_ns_ = 0;
};

template <typename Which>
void StateMoveQueue::cancel(Which which) {
  std::erase_if(waiting_, [&](const Waiting& one) {
    if (!which(one.command)) return false;
    report(one, Errc::cancelled, Sentence("the state's tensor, group or client went"));
    return true;
  });
}

}  // namespace tern::daemon
