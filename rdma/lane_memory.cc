#include "rdma/lane_memory.h"

#include <algorithm>

namespace tern::rdma {

void LaneMemory::remember(std::span<const std::byte> memory) {
  for (std::size_t begin = 0; begin < memory.size(); begin += kPieceBytes) {
    const std::size_t bytes = std::min(kPieceBytes + kOverlapBytes, memory.size() - begin);
    known_.push_back({memory.subspan(begin, bytes), memory, nullptr, false});
    if (begin + bytes == memory.size()) break;
  }
}

void LaneMemory::forget(std::span<const std::byte> memory) {
  std::erase_if(known_, [&](const Known& known) {
    const bool is_of_it =
        known.whole.data() == memory.data() && known.whole.size() == memory.size();
    if (is_of_it && known.region) registered_bytes_ -= known.memory.size();
    return is_of_it;
  });
  last_ = 0;
  // There may be room for others now.
  for (Known& known : known_) known.refused = false;
  set_trouble("");
}

void LaneMemory::set_trouble(std::string text) {
  if (text == trouble_) return;
  trouble_ = std::move(text);
  ++trouble_revision_;
}

void LaneMemory::use(std::shared_ptr<Device> device) {
  if (device == device_) return;
  for (Known& known : known_) {
    known.region.reset();
    known.refused = false;
  }
  registered_bytes_ = 0;
  set_trouble("");
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
    return set_trouble("the limit of registered memory is reached (rdma_max_registered, " +
                       std::to_string(limit_bytes_ >> 20) + " MiB for each lane)");
  }
  // The verbs take a pointer to what may be written, whatever the access flags say.
  auto region =
      device_->register_memory(const_cast<std::byte*>(known.memory.data()), known.memory.size(), 0);
  if (!region) {
    return set_trouble(region.error().text);
  }
  known.region = std::move(*region);
  known.refused = false;
  registered_bytes_ += known.memory.size();
}

}  // namespace tern::rdma
