#include "rdma/lane_memory.h"

#include <algorithm>

namespace tern::rdma {

void LaneMemory::remember(std::span<const std::byte> memory) {
  if (!memory.empty()) known_.push_back({memory, nullptr, false});
}

void LaneMemory::forget(std::span<const std::byte> memory) {
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& known) {
    return known.memory.data() == memory.data() && known.memory.size() == memory.size();
  });
  if (found == known_.end()) return;
  if (found->region) registered_bytes_ -= memory.size();
  known_.erase(found);
  last_ = 0;
}

void LaneMemory::use(std::shared_ptr<Device> device) {
  if (device == device_) return;
  for (Known& known : known_) {
    known.region.reset();
    known.refused = false;
  }
  registered_bytes_ = 0;
  trouble_.clear();
  device_ = std::move(device);
}

std::optional<std::uint32_t> LaneMemory::key_of(std::span<const std::byte> bytes) {
  if (last_ >= known_.size() || !known_[last_].holds(bytes)) {
    for (last_ = 0; last_ < known_.size() && !known_[last_].holds(bytes); ++last_) {
    }
    if (last_ == known_.size()) return std::nullopt;
  }
  Known& known = known_[last_];
  if (!known.region && !known.refused) register_now(known);
  if (!known.region) return std::nullopt;
  return known.region->lkey;
}

void LaneMemory::register_now(Known& known) {
  known.refused = true;
  if (!device_) return;
  if (known.memory.size() > limit_bytes_ - std::min(limit_bytes_, registered_bytes_)) {
    trouble_ = "the limit of registered memory is reached: frames are copied";
    return;
  }
  // The verbs take a pointer to what may be written, whatever the access flags say.
  auto region =
      device_->register_memory(const_cast<std::byte*>(known.memory.data()), known.memory.size(), 0);
  if (!region) {
    trouble_ = region.error().text;
    return;
  }
  known.region = std::move(*region);
  known.refused = false;
  registered_bytes_ += known.memory.size();
}

}  // namespace tern::rdma
