#pragma once

#include <cstdint>

namespace tern::wire {

// The only version numbers of Tern's formats. A change of width, order or meaning takes a new
// number; a new kind, or a reserved field used under a feature bit, does not.
inline constexpr std::uint16_t kWireProtocolMin = 1;
inline constexpr std::uint16_t kWireProtocol = 1;
inline constexpr std::uint16_t kShmAbi = 1;
inline constexpr std::uint16_t kControlProtocol = 1;
inline constexpr std::uint16_t kCountersFile = 1;

}  // namespace tern::wire
