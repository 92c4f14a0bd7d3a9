#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tern::daemon {

// The names that ranks of this node have declared in one group, and how often each of these ranks:
// the id of a rank's next tensor of that name depends on it. So a name is remembered after its
// tensors are released, until the group is forgotten. The map is ordered, because names are chosen
// by users, who could aim at a hash.
class DeclaredNames {
 public:
  // What a rank has said of one name.
  struct Said {
    std::uint32_t times = 0;  // the next one's generation
    bool holds = false;       // the last one is not released
  };

  // `rank` is its index on this node.
  Said of(std::size_t rank, std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() || rank >= found->second.size() ? Said() : found->second[rank];
  }
  bool has(std::string_view name) const { return by_name_.contains(name); }
  void declare(std::size_t rank, const std::string& name) {
    std::vector<Said>& of_ranks = by_name_[name];
    if (rank >= of_ranks.size()) of_ranks.resize(rank + 1);
    ++of_ranks[rank].times;
    of_ranks[rank].holds = true;
  }
  // REQUIRES: the rank has declared it.
  void release(std::size_t rank, std::string_view name) {
    by_name_.find(name)->second[rank].holds = false;
  }

  std::size_t size() const { return by_name_.size(); }
  bool empty() const { return by_name_.empty(); }
  // REQUIRES: not empty.
  void forget_one() { by_name_.erase(by_name_.begin()); }

 private:
  std::map<std::string, std::vector<Said>, std::less<>> by_name_;
};

}  // namespace tern::daemon
