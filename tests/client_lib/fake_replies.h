#pragma once

// What the fake daemon says of any tensor.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

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

inline shm::TensorBlocksPacket blocks_reply(std::uint64_t request, std::uint64_t chunk_elements,
                                            bool tunes, const std::string& recipe) {
  auto blocks =
      shm::make_packet<shm::TensorBlocksPacket>(shm::PacketKind::tensor_blocks_reply, request);
  blocks.chunk_elements = chunk_elements;
  blocks.seed = 7;
  blocks.most_block_bytes = 900;
  blocks.is_tuned = tunes ? 1 : 0;
  recipe.copy(blocks.recipe, sizeof blocks.recipe - 1);
  return blocks;
}

inline shm::TensorRecipesPacket recipes_reply(std::uint64_t request,
                                              const std::vector<std::string>& recipes) {
  auto reply =
      shm::make_packet<shm::TensorRecipesPacket>(shm::PacketKind::tensor_recipes_reply, request);
  reply.count = static_cast<std::uint32_t>(recipes.size());
  for (std::size_t i = 0; i < std::min(recipes.size(), shm::kMaxTunedRecipes); ++i) {
    recipes[i].copy(reply.recipes[i], sizeof(reply.recipes[i]) - 1);
  }
  return reply;
}

}  // namespace tern::testing
