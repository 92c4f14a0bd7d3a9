#pragma once

// Where the blocks of an op lie in a client's memory, whose tensor was declared with client_blocks:
// a slot for each chunk, one after the other. A slot begins on a cache line, with a block header;
// the payload follows. Client and daemon ask the same. Thread: any; it is plain numbers.

#include <algorithm>
#include <cstdint>

#include "shm/layout.h"
#include "wire/block.h"

namespace tern::shm {

struct BlockSlots {
  // What codebooks and tables add to a block whose elements do not get shorter.
  static constexpr std::uint64_t kOverhead = 2048;

  std::uint64_t count = 0;           // elements of the op, > 0
  std::uint64_t chunk_elements = 1;  // of every slot but the last
  std::uint64_t element_bytes = 1;

  constexpr std::uint64_t slots() const noexcept { return (count - 1) / chunk_elements + 1; }
  constexpr std::uint64_t slot_bytes() const noexcept {
    const std::uint64_t most = std::min(chunk_elements, count) * element_bytes + kOverhead;
    return (wire::kBlockHeaderBytes + most + kCacheLine - 1) / kCacheLine * kCacheLine;
  }
  constexpr std::uint64_t bytes() const noexcept { return slots() * slot_bytes(); }
  // The most that the payload of a block may have there.
  constexpr std::uint64_t payload_room() const noexcept {
    return slot_bytes() - wire::kBlockHeaderBytes;
  }

  // Where the block is in which the element lies.
  constexpr std::uint64_t block_offset(std::uint64_t element) const noexcept {
    return element / chunk_elements * slot_bytes();
  }
  // Where the element is, if its block is raw.
  constexpr std::uint64_t element_offset(std::uint64_t element) const noexcept {
    return block_offset(element) + wire::kBlockHeaderBytes +
           element % chunk_elements * element_bytes;
  }
};

}  // namespace tern::shm
