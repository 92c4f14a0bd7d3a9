#pragma once

// Where the bytes of a block or of a tensor lie. What encodes, adds and decodes is handed operands
// and not pointers, so that memory which this processor cannot read needs another executor and no
// other lane.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "net/transport.h"

namespace tern::daemon {

// Who can read and write the memory, as transports are told of it.
using Space = net::MemoryKind;

// Memory that stays where it is while operands refer to it: a client's arena, a pool of slabs.
struct Region {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  Space space = Space::host;
  // (op, rank) pairs that refer to it; for its lane alone.
  mutable std::uint32_t uses = 0;
};

// A piece of a region. Owned by: whoever owns the region.
struct Operand {
  const Region* region = nullptr;  // null: no operand
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  bool empty() const noexcept { return region == nullptr; }
  // REQUIRES: not empty.
  Space space() const noexcept { return region->space; }
  // REQUIRES: the slice lies in the operand.
  Operand slice(std::uint64_t from, std::uint64_t length) const noexcept {
    TERN_CHECK(from <= bytes && length <= bytes - from);
    return {region, offset + from, length};
  }
  bool operator==(const Operand&) const = default;
};

// What transports are told.
inline net::Memory memory_of(const Region& region) noexcept {
  return {{region.base, region.bytes}, region.space};
}

// REQUIRES: the operand is in host memory.
inline std::span<std::byte> host_bytes(const Operand& operand) noexcept {
  TERN_CHECK(!operand.empty() && operand.space() == Space::host);
  return {operand.region->base + operand.offset, operand.bytes};
}

}  // namespace tern::daemon
