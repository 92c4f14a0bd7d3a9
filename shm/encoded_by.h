#pragma once

// How a client has encoded, or is to encode, blocks whose recipe the tuner chooses: a number in
// entries and completions. Thread: any; it is plain numbers.

#include <cstdint>

namespace tern::shm {

struct EncodedBy {
  std::uint8_t recipe = 0;     // TensorRecipesPacket::recipes; 0 is raw
  std::uint8_t raw_first = 0;  // of each other node's chunks so many go raw, for a look at the link

  static constexpr std::uint32_t kReservedBits = 0xffff0000;

  // Never 0, which says nothing.
  constexpr std::uint32_t packed() const noexcept {
    return (std::uint32_t{recipe} + 1) | (std::uint32_t{raw_first} << 8);
  }
  // REQUIRES: `packed` is not 0, and has no reserved bits.
  static constexpr EncodedBy of(std::uint32_t packed) noexcept {
    return {static_cast<std::uint8_t>((packed & 0xff) - 1), static_cast<std::uint8_t>(packed >> 8)};
  }
  friend bool operator==(const EncodedBy&, const EncodedBy&) = default;
};

}  // namespace tern::shm
