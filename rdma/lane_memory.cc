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
  std::erase_if(known_, [&](const Known& known) {
    if (known.whole.data() != memory.data() || known.whole.size() != memory.size()) return false;
    if (known.region) registered_bytes_ -= known.memory.size();
    for (const auto& [first, units] : known.units) registered_bytes_ -= units.memory.size();
    return true;
  });
  last_ = 0;
  // There may be room for others now.
  for (Known& known : known_) known.refused = known.has_absent_pages;
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
    known.units.clear();
    known.refused = false;
    known.has_absent_pages = false;
  }
  registered_bytes_ = 0;
  set_trouble("");
  device_ = std::move(device);
}

std::optional<std::uint32_t> LaneMemory::key_of(std::span<const std::byte> bytes) {
  if (last_ >= known_.size() || !holds(known_[last_].memory, bytes)) {
    for (last_ = 0; last_ < known_.size() && !holds(known_[last_].memory, bytes); ++last_) {
    }
    if (last_ == known_.size()) return std::nullopt;
  }
  Known& known = known_[last_];
  if (!known.region && !known.refused) register_piece(known);
  if (known.region) return known.region->lkey;
  return known.has_absent_pages ? key_of_units(known, bytes) : std::nullopt;
}

std::optional<std::uint32_t> LaneMemory::key_of_units(Known& known,
                                                      std::span<const std::byte> bytes) {
  const auto begin = static_cast<std::size_t>(bytes.data() - known.whole.data());
  const std::size_t first = begin / kUnitBytes;
  const auto end = known.units.upper_bound(first);
  for (auto run = known.units.lower_bound(first - std::min(first, kLongestRun)); run != end;
       ++run) {
    if (holds(run->second.memory, bytes)) return run->second.region->lkey;
  }
  const std::size_t last = (begin + bytes.size() + kUnitBytes - 1) / kUnitBytes;
  const std::size_t length = std::min(last * kUnitBytes, known.whole.size()) - first * kUnitBytes;
  const auto memory = known.whole.subspan(first * kUnitBytes, length);
  auto region = register_now(memory);
  if (!region) {
    if (region.error().code != Errc::invalid_argument) set_trouble(region.error().text);
    return std::nullopt;
  }
  return known.units.emplace(first, UnitRun{memory, std::move(*region)})->second.region->lkey;
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
  if (memory.size() > limit_bytes_ - std::min(limit_bytes_, registered_bytes_)) {
    return fail(Errc::out_of_memory,
                "the limit of registered memory is reached (rdma_max_registered, " +
                    std::to_string(limit_bytes_ >> 20) + " MiB for each lane)");
  }
  // The verbs take a pointer to what may be written, whatever the access flags say.
  auto region = device_->register_memory(const_cast<std::byte*>(memory.data()), memory.size(), 0);
  if (region) registered_bytes_ += memory.size();
  return region;
}

}  // namespace tern::rdma
