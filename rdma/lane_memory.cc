#include "rdma/lane_memory.h"

#include <algorithm>

namespace tern::rdma {

void LaneMemory::remember(std::span<const std::byte> memory) {
  for (std::size_t begin = 0; begin < memory.size(); begin += kPieceBytes) {
    const std::size_t bytes = std::min(kPieceBytes + kOverlapBytes, memory.size() - begin);
    known_.emplace_back(memory.subspan(begin, bytes), memory);
    if (begin + bytes == memory.size()) break;
  }
}

void LaneMemory::forget(std::span<const std::byte> memory) {
  const auto is_of_it = [&](const Known& known) {
    return known.whole.data() == memory.data() && known.whole.size() == memory.size();
  };
  for (Known& known : known_) {
    if (is_of_it(known)) forget_regions(known);
  }
  std::erase_if(known_, is_of_it);
  last_ = 0;
  let_go();
  // There may be room for others now.
  for (Known& known : known_) known.refused = known.has_absent_pages;
  set_trouble("");
}

void LaneMemory::forget_regions(Known& known) {
  if (known.region) {
    forgotten_.push_back({device_, std::move(known.region), known.memory.size()});
    known.region.reset();
  }
  for (auto& [first, units] : known.units) {
    forgotten_.push_back({device_, std::move(units.region), units.memory.size()});
  }
  known.units.clear();
}

int LaneMemory::let_go() {
  int count = 0;
  for (; !forgotten_.empty() && forgotten_.back().bytes <= turn_bytes_; ++count) {
    take_of_turn(forgotten_.back().bytes);
    registered_bytes_ -= forgotten_.back().bytes;
    forgotten_.pop_back();
  }
  return count;
}

void LaneMemory::set_trouble(std::string text) {
  if (text == trouble_) return;
  trouble_ = std::move(text);
  ++trouble_revision_;
}

void LaneMemory::use(std::shared_ptr<Device> device) {
  if (device == device_) return;
  for (Known& known : known_) {
    forget_regions(known);
    known.refused = false;
    known.has_absent_pages = false;
  }
  set_trouble("");
  device_ = std::move(device);
}

// Enough has been registered or let go in this turn. Or there may be more room, also of the device
// and of locked memory, when what was forgotten has been let go.
bool LaneMemory::comes_later(std::size_t bytes) const noexcept {
  return device_ && (bytes > turn_bytes_ || is_letting_go());
}

LaneMemory::Key LaneMemory::key_of(std::span<const std::byte> bytes) {
  if (last_ >= known_.size() || !holds(known_[last_].memory, bytes)) {
    for (last_ = 0; last_ < known_.size() && !holds(known_[last_].memory, bytes); ++last_) {
    }
    if (last_ == known_.size()) return {};
  }
  Known& known = known_[last_];
  if (!known.region && !known.refused) {
    if (comes_later(known.memory.size())) return {.comes_later = true};
    register_piece(known);
  }
  if (known.region) return {.value = known.region->lkey};
  return known.has_absent_pages ? key_of_units(known, bytes) : Key{};
}

LaneMemory::Key LaneMemory::key_of_units(Known& known, std::span<const std::byte> bytes) {
  const auto begin = static_cast<std::size_t>(bytes.data() - known.whole.data());
  const std::size_t first = begin / kUnitBytes;
  const auto end = known.units.upper_bound(first);
  for (auto run = known.units.lower_bound(first - std::min(first, kLongestRun)); run != end;
       ++run) {
    if (holds(run->second.memory, bytes)) return {.value = run->second.region->lkey};
  }
  const std::size_t last = (begin + bytes.size() + kUnitBytes - 1) / kUnitBytes;
  const std::size_t length = std::min(last * kUnitBytes, known.whole.size()) - first * kUnitBytes;
  const auto memory = known.whole.subspan(first * kUnitBytes, length);
  if (comes_later(length)) return {.comes_later = true};
  auto region = register_now(memory);
  if (!region) {
    if (region.error().code != Errc::invalid_argument) set_trouble(region.error().text);
    return {};
  }
  const auto run = known.units.emplace(first, UnitRun{memory, std::move(*region)});
  return {.value = run->second.region->lkey};
}

void LaneMemory::register_piece(Known& known) {
  known.refused = true;
  if (!device_) return;
  auto region = register_now(known.memory);
  known.has_absent_pages = !region && region.error().code == Errc::invalid_argument;
  if (known.has_absent_pages) return;
  if (!region) return set_trouble(region.error().text);
  known.region = std::move(*region);
  known.refused = false;
}

Result<MemoryRegion> LaneMemory::register_now(std::span<const std::byte> memory) {
  if (!is_within_limit(memory.size())) {
    return fail(Errc::out_of_memory,
                "the limit of registered memory is reached (rdma_max_registered, " +
                    std::to_string(limit_bytes_ >> 20) + " MiB for each lane)");
  }
  // The verbs take a pointer to what may be written, whatever the access flags say.
  auto region = device_->register_memory(const_cast<std::byte*>(memory.data()), memory.size(), 0);
  if (region) {
    registered_bytes_ += memory.size();
    take_of_turn(memory.size());
  }
  return region;
}

}  // namespace tern::rdma
