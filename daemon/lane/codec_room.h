#pragma once

#include <algorithm>
#include <cstdint>

#include "codec/workspace.h"
#include "daemon/lane/mapping.h"
#include "daemon/lane/slab_pool.h"

namespace tern::daemon {

// What the codecs of one lane work in. Nothing in it outlives a request.
struct CodecRoom {
  // As the daemon starts. REQUIRES: there is room for mapped_bytes().
  explicit CodecRoom(std::uint64_t chunk_bytes)
      : memory(Mapping::at_start(mapped_bytes(chunk_bytes))),
        scratch(memory, kChunks, 2 * chunk_bytes) {}

  static std::uint64_t mapped_bytes(std::uint64_t chunk_bytes) noexcept {
    return SlabPool::bytes_for(kChunks, 2 * chunk_bytes);
  }

  static constexpr std::uint32_t kChunks = 2;

  codec::Workspace workspace;
  Mapping memory;
  SlabPool scratch;  // chunks in f32

  // What blocks, and the copies of sends, have taken in the lane's turn.
  struct Spent {
    std::uint64_t longest_ns = 0;  // one of them
    std::uint64_t chunks_ns = 0;   // those that groups have chosen, not those that links brought

    void add(std::uint64_t ns) noexcept {
      chunks_ns += ns;
      longest_ns = std::max(longest_ns, ns);
    }
    // What is no block's.
    void charge(std::uint64_t ns) noexcept { chunks_ns += ns; }
    // Whether a group may choose another: the wire must not wait long for the codec.
    bool leaves_time() const noexcept { return chunks_ns < kChunksNs; }

    static constexpr std::uint64_t kChunksNs = 4'000'000;
  };
  Spent spent;
};

}  // namespace tern::daemon
