#include "tuner/tensor_memory.h"

namespace tern::tuner {

const TensorMemory::Records* TensorMemory::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &found->second->records;
}

const TensorMemory::Records* TensorMemory::use(const std::string& name) {
  const auto found = places_.find(name);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.end(), entries_, found->second);
  return &found->second->records;
}

TensorMemory::Records& TensorMemory::renew(const std::string& name) {
  if (use(name) == nullptr) {
    constexpr int kAtOnce = 2;
    for (int gone = 0; gone < kAtOnce && !entries_.empty() && entries_.size() >= most_; ++gone) {
      places_.erase(entries_.front().name);
      entries_.pop_front();
    }
    places_[name] = entries_.insert(entries_.end(), {name, {}});
  }
  return entries_.back().records;
}

}  // namespace tern::tuner
