#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/tensor/tensor_state.h"

namespace tern::daemon {

struct DeclaredTensor {
  std::shared_ptr<TensorState> state;
  std::uint64_t holders = 0;   // local ranks, by their index on this node
  std::uint32_t releases = 0;  // how often the last holder has released it
  std::uint32_t dropped = 0;   // lanes that have let go since then; counts once holders is 0
  std::string state_key;       // of the state to be kept, or empty
};

// The tensors that ranks of this node have declared in one group, found by id and by name, and what
// their codec state takes. A user may have tens of thousands: only who is to see all of them goes
// over all. The maps are ordered, because names are chosen by users, who could aim at a hash.
class DeclaredTensors {
 public:
  using Map = std::map<std::uint64_t, DeclaredTensor>;  // by id

  DeclaredTensors() = default;
  DeclaredTensors(const DeclaredTensors&) = delete;
  DeclaredTensors& operator=(const DeclaredTensors&) = delete;

  // Null: there is none.
  DeclaredTensor* find(std::uint64_t id) {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &found->second;
  }
  const DeclaredTensor* find(std::uint64_t id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &found->second;
  }
  // REQUIRES: there is one.
  DeclaredTensor& at(std::uint64_t id) { return by_id_.at(id); }
  // A name has another id each time that it is declared again, until lanes have let go of the last.
  std::vector<DeclaredTensor*> named(std::string_view name) {
    std::vector<DeclaredTensor*> tensors;
    const auto [begin, end] = by_name_.equal_range(name);
    for (auto one = begin; one != end; ++one) tensors.push_back(one->second);
    return tensors;
  }

  // The next one after that id, or the first. Null: there is none.
  DeclaredTensor* after(std::optional<std::uint64_t> id) {
    const auto next = id ? by_id_.upper_bound(*id) : by_id_.begin();
    return next == by_id_.end() ? nullptr : &next->second;
  }

  // REQUIRES: there is none of this id, and the state has got its codec state.
  void add(DeclaredTensor tensor) {
    state_bytes_ += tensor.state->state_bytes();
    const std::uint64_t id = tensor.state->id;
    DeclaredTensor& added = by_id_.emplace(id, std::move(tensor)).first->second;
    by_name_.emplace(added.state->name, &added);
  }
  // REQUIRES: there is one.
  void remove(std::uint64_t id) {
    const auto found = by_id_.find(id);
    state_bytes_ -= found->second.state->state_bytes();
    auto named = by_name_.lower_bound(found->second.state->name);
    while (named->second != &found->second) ++named;
    by_name_.erase(named);
    by_id_.erase(found);
  }

  // REQUIRES: not empty.
  DeclaredTensor& any() { return by_id_.begin()->second; }
  std::size_t size() const { return by_id_.size(); }
  bool empty() const { return by_id_.empty(); }
  // Of the codec states of all.
  std::uint64_t state_bytes() const { return state_bytes_; }

  const Map& all() const {
    ++walks_;
    return by_id_;
  }
  Map& all() {
    ++walks_;
    return by_id_;
  }
  // How often somebody has asked for all: not when one tensor is declared or released.
  std::uint64_t walks() const { return walks_; }

 private:
  Map by_id_;
  std::multimap<std::string_view, DeclaredTensor*> by_name_;  // the names are those of the states
  std::uint64_t state_bytes_ = 0;
  mutable std::uint64_t walks_ = 0;
};

}  // namespace tern::daemon
