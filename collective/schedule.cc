#include "collective/schedule.h"

#include <algorithm>

namespace tern::collective {

Schedule::Schedule(std::size_t slots) {
  for (auto* list : {&to_announce_, &to_tell_, &to_fail_remote_, &to_complete_}) {
    list->reserve(slots);
  }
  running_.reserve(slots);
}

void Schedule::add(std::vector<OpId>& list, OpId id) {
  if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
}

OpId Schedule::take(std::vector<OpId>& list, std::size_t index) {
  if (index >= list.size()) return kNoSlot;
  const OpId id = list[index];
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(index));
  return id;
}

void Schedule::run(OpId id, const Op& op) {
  const Running row{id, op.priority, op.order};
  const auto place = std::upper_bound(
      running_.begin(), running_.end(), row, [](const Running& a, const Running& b) {
        return a.priority != b.priority ? a.priority > b.priority : a.order < b.order;
      });
  running_.insert(place, row);
}

void Schedule::run_last(OpId id, const Op& op) { running_.push_back({id, op.priority, op.order}); }

void Schedule::stop(OpId id) {
  std::erase_if(running_, [id](const Running& row) { return row.id == id; });
}

void Schedule::drop(OpId id) {
  stop(id);
  std::erase(to_announce_, id);
  std::erase(to_tell_, id);
}

OpId Schedule::take_fail_remote() { return take(to_fail_remote_, 0); }

// The latest first: those that have waited for longer have been told of already.
OpId Schedule::take_tell_submitted() {
  return to_tell_.empty() ? kNoSlot : take(to_tell_, to_tell_.size() - 1);
}

}  // namespace tern::collective
