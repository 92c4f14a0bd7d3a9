#pragma once

// What the fake daemon says of any tensor.

#include <cstdint>
#include <cstring>

#include "shm/packet_socket.h"

namespace tern::testing {

inline shm::TensorStatsPacket stats_reply(std::uint64_t request) {
  auto stats =
      shm::make_packet<shm::TensorStatsPacket>(shm::PacketKind::tensor_stats_reply, request);
  stats.ops = 3;
  stats.bytes_raw = 4000;
  stats.bytes_sent = 1000;
  std::strcpy(stats.recipe, "none(raw)");
  return stats;
}

inline shm::TensorBlocksPacket blocks_reply(std::uint64_t request, std::uint64_t chunk_elements) {
  auto blocks =
      shm::make_packet<shm::TensorBlocksPacket>(shm::PacketKind::tensor_blocks_reply, request);
  blocks.chunk_elements = chunk_elements;
  blocks.seed = 7;
  blocks.most_block_bytes = 900;
  std::strcpy(blocks.recipe, "ef(3lc:s=1,scale=4096)");
  return blocks;
}

}  // namespace tern::testing
