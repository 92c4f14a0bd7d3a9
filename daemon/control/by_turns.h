#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

namespace tern::daemon {

// Things that wait, of several owners. One of each owner comes in turn, so that who has many keeps
// nobody else's waiting for more than one of them. Some owners come first: theirs is every other
// thing, so that they wait for one of the others' at most and keep none of those waiting for good.
template <typename Thing>
class ByTurns {
 public:
  bool empty() const noexcept { return first_.empty() && others_.empty(); }

  // What comes first is another line than the rest of the same owner. Of an owner of whom nothing
  // waits in that line it comes after one of each other.
  void add(std::uint32_t owner, Thing thing, bool comes_first = false) {
    std::deque<Line>& lines = comes_first ? first_ : others_;
    auto line = std::find_if(lines.begin(), lines.end(),
                             [owner](const Line& one) { return one.owner == owner; });
    if (line == lines.end()) line = lines.insert(lines.end(), Line{owner, {}});
    line->things.push_back(std::move(thing));
  }

  // REQUIRES: !empty().
  Thing take() {
    was_first_ = others_.empty() || (!first_.empty() && !was_first_);
    std::deque<Line>& lines = was_first_ ? first_ : others_;
    Line line = std::move(lines.front());
    lines.pop_front();
    Thing thing = std::move(line.things.front());
    line.things.pop_front();
    if (!line.things.empty()) lines.push_back(std::move(line));
    return thing;
  }

 private:
  struct Line {
    std::uint32_t owner;
    std::deque<Thing> things;  // at least one
  };

  // In the order of their turns.
  std::deque<Line> first_;
  std::deque<Line> others_;
  bool was_first_ = false;  // the last turn
};

}  // namespace tern::daemon
