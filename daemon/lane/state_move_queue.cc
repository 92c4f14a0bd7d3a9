#include "daemon/lane/state_move_queue.h"

#include <algorithm>

#include "daemon/lane/lane_group.h"

namespace tern::daemon {

void StateMoveQueue::add(const command::MoveState& command) {
  clients_.mark_before_move();
  waiting_.push_back({command, {}});
}

int StateMoveQueue::do_work(std::size_t active_jobs) {
  if (waiting_.empty() || clients_.has_older_than_move()) return 0;
  const std::uint64_t begin = clock_.now_ns();
  if (begin < next_ns_) return 0;
  Waiting& one = waiting_.front();
  event::StateMoved outcome{one.command.group, one.command.move, Errc::ok, {}};
  const bool more = one.command.group->move_state(*one.command.move, one.progress, outcome);
  const LaneClient* const client = clients_.find(one.command.move->client);
  if (client != nullptr && client->memory->segment.has_lost_pages()) {
    constexpr const char* kWhy =
        "a page of the memory that the state is moved in is not there; move it to memory from "
        "tern_alloc";
    report(one, Errc::out_of_memory, Sentence(kWhy));
    waiting_.erase(waiting_.begin());
  } else if (more) {
    std::rotate(waiting_.begin(), waiting_.begin() + 1, waiting_.end());
  } else {
    report(one, outcome.code, outcome.text);
    waiting_.erase(waiting_.begin());
  }
  const std::uint64_t end = clock_.now_ns();
  next_ns_ = end + (end - begin) * active_jobs;
  return 1;
}

void StateMoveQueue::report(const Waiting& one, Errc code, const Sentence& text) {
  reports_.report(event::StateMoved{one.command.group, one.command.move, code, text,
                                    one.progress.next_chunk != 0});
}

}  // namespace tern::daemon
