#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

namespace tern::daemon {

// Things that wait, of several owners. One of each owner comes in turn, so that who has many keeps
// nobody else's waiting for more than one of them.
template <typename Thing>
class ByTurns {
 public:
  bool empty() const noexcept { return lines_.empty(); }

  // Of an owner of whom nothing waits it comes after one of each other, or first of all.
  void add(std::uint32_t owner, Thing thing, bool is_first = false) {
    auto line = std::find_if(lines_.begin(), lines_.end(),
                             [owner](const Line& one) { return one.owner == owner; });
    if (line == lines_.end()) {
      line = lines_.insert(is_first ? lines_.begin() : lines_.end(), Line{owner, {}});
    }
    line->things.push_back(std::move(thing));
  }

  // REQUIRES: !empty().
  Thing take() {
    Line line = std::move(lines_.front());
    lines_.pop_front();
    Thing thing = std::move(line.things.front());
    line.things.pop_front();
    if (!line.things.empty()) lines_.push_back(std::move(line));
    return thing;
  }

 private:
  struct Line {
    std::uint32_t owner;
    std::deque<Thing> things;  // at least one
  };

  std::deque<Line> lines_;  // in the order of their turns
};

}  // namespace tern::daemon
