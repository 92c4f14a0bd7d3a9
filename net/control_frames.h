#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/hello.h"

namespace tern::net {

// Unsequenced frames on their way out. Nobody acknowledges them, so a place is used again when the
// connection has taken its bytes.
class ControlFrames {
 public:
  static constexpr std::size_t kPlaces = 16;
  struct Place {
    std::array<std::byte, sizeof(wire::RefuseFrame)> bytes;
    std::uint64_t end_offset = 0;
  };
  // Null when all are in use. `taken` is the connection's offset up to which bytes have left.
  Place* next(std::uint64_t taken) noexcept {
    Place& place = places_[next_];
    if (place.end_offset > taken) return nullptr;
    next_ = (next_ + 1) % kPlaces;
    return &place;
  }
  void reset() noexcept {
    for (auto& place : places_) place.end_offset = 0;
  }

 private:
  std::array<Place, kPlaces> places_;
  std::size_t next_ = 0;
};

}  // namespace tern::net
