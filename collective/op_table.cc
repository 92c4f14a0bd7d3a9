#include "collective/op_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tern::collective {
namespace {

// A program may declare tensors without end. One that ends a model drops very many at once, while
// frames about their last ops are under way: of a tensor that is not known these would break the
// protocol.
constexpr std::size_t kDroppedTensors = 16'384;

}  // namespace

OpTable::OpTable(std::size_t slots, std::uint32_t nodes, std::uint32_t rows)
    : ops_(slots), used_(slots), free_(slots), heard_(slots, nodes, rows) {
  for (std::size_t i = 0; i < slots; ++i) free_[i] = static_cast<OpId>(slots - 1 - i);
}

OpId OpTable::create(const OpKey& key) {
  if (free_.empty()) return kNoSlot;
  const OpId id = free_.back();
  free_.pop_back();
  used_[id] = true;
  ops_[id] = Op{};
  ops_[id].key = key;
  ops_[id].order = next_order_++;
  by_tensor_[key.tensor].push_back(id);
  ++live_;
  return id;
}

OpId OpTable::find_or_create(const OpKey& key) {
  const OpId id = find(key);
  return id != kNoSlot || superseded(key) || is_dropped(key.tensor) ? id : create(key);
}

void OpTable::remove(OpId id) {
  TERN_CHECK(used_[id]);
  const OpKey key = ops_[id].key;
  // Of what only other nodes speak nothing stays: the tensors that they name have no end.
  const bool is_ours = ops_[id].submitted != 0 || known_.contains(key.tensor);
  if (is_ours) submitted_by_all(key);
  auto& live = by_tensor_[key.tensor];
  live.erase(std::find(live.begin(), live.end(), id));
  if (live.empty() && (!is_ours || is_dropped(key.tensor))) by_tensor_.erase(key.tensor);
  used_[id] = false;
  heard_.clear(id);
  free_.push_back(id);
  --live_;
}

void OpTable::remember(OpId id) noexcept {
  remembered_ += ops_[id].is_remembered() ? 0 : 1;
  ops_[id].ending = Ending::remembered;
}

void OpTable::recall(OpId id) noexcept {
  if (!ops_[id].is_remembered()) return;
  ops_[id].ending = Ending::none;
  --remembered_;
}

OpId OpTable::find(const OpKey& key) const noexcept {
  const auto found = by_tensor_.find(key.tensor);
  if (found == by_tensor_.end()) return kNoSlot;
  for (const OpId id : found->second) {
    if (ops_[id].key.sequence == key.sequence) return id;
  }
  return kNoSlot;
}

void OpTable::submitted_by_all(const OpKey& key) {
  auto& below = known_[key.tensor].submitted_below;
  below = std::max(below, key.sequence + 1);
}

bool OpTable::superseded(const OpKey& key) const noexcept {
  const auto found = known_.find(key.tensor);
  return found != known_.end() && key.sequence < found->second.submitted_below;
}

void OpTable::drop_tensor(std::uint64_t tensor) {
  if (std::exchange(known_[tensor].is_dropped, true)) return;
  forget_if_unused(tensor);
  if (dropped_.size() < kDroppedTensors) return dropped_.push_back(tensor);
  known_.erase(std::exchange(dropped_[oldest_dropped_], tensor));
  oldest_dropped_ = (oldest_dropped_ + 1) % kDroppedTensors;
}

bool OpTable::is_dropped(std::uint64_t tensor) const noexcept {
  const auto found = known_.find(tensor);
  return found != known_.end() && found->second.is_dropped;
}

// Of other tensors the list keeps its memory for the next use.
void OpTable::forget_if_unused(std::uint64_t tensor) {
  if (is_dropped(tensor) && uses(tensor).empty()) by_tensor_.erase(tensor);
}

std::span<const OpId> OpTable::uses(std::uint64_t tensor) const noexcept {
  const auto found = by_tensor_.find(tensor);
  return found == by_tensor_.end() ? std::span<const OpId>() : found->second;
}

bool OpTable::waits_for_earlier_use(OpId id) const noexcept {
  const OpKey& key = ops_[id].key;
  if (key.tensor == 0) return false;
  const auto found = by_tensor_.find(key.tensor);
  return std::any_of(found->second.begin(), found->second.end(), [&](OpId other) {
    return ops_[other].key.sequence < key.sequence && !ops_[other].failed();
  });
}

bool OpTable::waits_for_running_use(OpId id) const noexcept {
  if (ops_[id].key.tensor == 0) return false;
  const OpId first = earliest_use(ops_[id].key.tensor);
  return first != kNoSlot && first != id && ops_[first].has_started();
}

OpId OpTable::earliest_use(std::uint64_t tensor) const noexcept {
  const auto found = by_tensor_.find(tensor);
  if (found == by_tensor_.end()) return kNoSlot;
  OpId earliest = kNoSlot;
  for (const OpId id : found->second) {
    if (ops_[id].failed()) continue;
    if (earliest == kNoSlot || ops_[id].key.sequence < ops_[earliest].key.sequence) earliest = id;
  }
  return earliest;
}

}  // namespace tern::collective
