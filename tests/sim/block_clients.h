#pragma once

// Ranks that hand over and take blocks, as libtern_blocks does it: by its own classes.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "blocks/contributions.h"
#include "blocks/results.h"
#include "blocks/state_part.h"
#include "cluster.h"
#include "codec/recipe.h"

namespace tern::sim {

inline blocks::Layout layout_of(const Client& client, const Tensor& tensor,
                                const shm::TensorBlocksPacket& said) {
  const shm::BlockSlots slots{tensor.spec.count, said.chunk_elements,
                              dtype_bytes(tensor.spec.dtype)};
  const auto nodes = static_cast<std::uint32_t>(client.group.node_count);
  tern_block_layout layout = TERN_BLOCK_LAYOUT_INIT;
  layout.travels_whole = said.travels_whole;
  layout.is_tuned = said.is_tuned;
  layout.count = slots.count;
  layout.chunk_elements = slots.chunk_elements;
  layout.chunks = slots.slots();
  layout.slot_bytes = slots.slot_bytes();
  layout.most_block_bytes = said.most_block_bytes;
  layout.tensor = tensor.id;
  layout.seed = said.seed;
  layout.first_owner = static_cast<std::uint32_t>(shm::spread_of(tensor.id, 0) % nodes);
  layout.node = static_cast<std::uint32_t>(client.group.node);
  layout.nodes = nodes;
  layout.dtype = static_cast<tern_dtype>(tensor.spec.dtype);
  std::memcpy(layout.recipe, said.recipe, sizeof(layout.recipe));
  return blocks::Layout(layout);
}

// One rank's tensor with client_blocks.
struct BlockTensor {
  BlockTensor(Client& of, const shm::TensorBlocksPacket& said, Tensor& declared)
      : client(of),
        tensor(declared),
        layout(layout_of(of, declared, said)),
        contributions(layout, codec::parse_recipe(said.recipe).value()),
        results(layout) {}

  std::span<std::byte> slots(std::uint64_t offset) const {
    return {client.at(offset), layout.bytes()};
  }

  // What an op that is submitted next says of its encoding.
  void encode(OpRequest& request, const Bytes& input, codec::Workspace& workspace) {
    blocks::Terms terms{request.reduction, 1.0f, request.state_scale, tensor.next_use};
    if (layout.is_tuned()) {
      if (has_no_encoder) next_by = {};
      request.encoded_by = next_by;
      contributions.change_recipe(recipes.at(next_by.recipe));
      terms.raw_first = next_by.raw_first;
    }
    const blocks::Lost lost = contributions.encode(input, terms, slots(request.input), workspace);
    request.encoded = {lost.energy, lost.residual_energy, lost.elements};
    request.encoded_ns = next_by.recipe == 0 ? 1 : takes_ns;
  }
  void take_choice(const OpResult& result) {
    const auto lanes = static_cast<std::uint32_t>(client.group.lane_count);
    const auto said = result.encode_next_by.find(shm::first_lane(tensor.id, 0, lanes));
    if (said != result.encode_next_by.end() && said->second != 0) {
      next_by = shm::EncodedBy::of(said->second);
    }
  }

  Client& client;
  Tensor& tensor;
  blocks::Layout layout;
  blocks::Contributions contributions;
  blocks::Results results;
  // Where the tuner chooses.
  std::vector<codec::Recipe> recipes;
  shm::EncodedBy next_by;
  bool has_no_encoder = false;  // all goes raw, whatever it is told
  std::uint64_t takes_ns = 1;   // it says that encoding by another recipe takes so long
};

// All ranks declare the tensor, those of `with_blocks` with client_blocks; nodes have one of these.
class BlockClients {
 public:
  BlockClients(Cluster& cluster, const TensorSpec& spec, const std::set<std::uint32_t>& with_blocks)
      : cluster_(cluster) {
    for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
      Client& client = *cluster.ranks[rank];
      TensorSpec own = spec;
      own.client_blocks = with_blocks.contains(rank);
      std::uint64_t request = client.declare(own);
      EXPECT_TRUE(cluster.await(client, request));
      tensors.push_back(client.adopt_declare(request, own));
      EXPECT_NE(tensors.back(), nullptr) << client.status_of(request).detail;
      blocks.push_back(nullptr);
      if (!own.client_blocks) continue;
      request = client.ask_of(shm::PacketKind::tensor_blocks, tensors.back()->id);
      EXPECT_TRUE(cluster.await(client, request));
      const auto said = client.answer<shm::TensorBlocksPacket>(request);
      EXPECT_TRUE(said.has_value()) << client.status_of(request).detail;
      blocks.back() = std::make_unique<BlockTensor>(client, *said, *tensors.back());
      if (said->is_tuned != 0) ask_recipes(rank);
    }
  }

  // All ranks submit; those with blocks encode first.
  Cluster::Pending submit(OpRequest request, const std::vector<Bytes>& inputs) {
    Cluster::Pending pending;
    pending.request = request;
    pending.inputs = inputs;
    for (std::uint32_t rank = 0; rank < cluster_.size(); ++rank) {
      Client& client = *cluster_.ranks[rank];
      BlockTensor* const own = blocks[rank].get();
      const std::uint64_t bytes = own != nullptr ? own->layout.bytes() : inputs[rank].size();
      request.input = request.output = client.allocate(bytes);
      request.has_blocks = own != nullptr;
      request.encoded_by.reset();
      request.encoded = {};
      request.encoded_ns = 0;
      if (own != nullptr) {
        own->encode(request, inputs[rank], workspace_);
      } else {
        std::copy(inputs[rank].begin(), inputs[rank].end(), client.at(request.input));
      }
      pending.outputs.push_back(request.output);
      pending.tickets.push_back(client.submit(request, tensors[rank]));
    }
    return pending;
  }
  Bytes output(const Cluster::Pending& pending, std::uint32_t rank) {
    BlockTensor* const own = blocks[rank].get();
    if (own == nullptr) return cluster_.output(pending, rank);
    Bytes elements(pending.inputs[rank].size());
    const Status decoded =
        own->results.decode(own->slots(pending.outputs[rank]), elements, workspace_);
    EXPECT_TRUE(decoded.has_value()) << decoded.error().text;
    return elements;
  }
  // One op that must succeed with the same bits everywhere; those of rank 0.
  Bytes reduce(const OpRequest& request, const std::vector<Bytes>& inputs) {
    const Cluster::Pending pending = submit(request, inputs);
    cluster_.finish(pending);
    cluster_.expect_all(pending, Errc::ok);
    sent = 0;
    for (std::uint32_t rank = 0; rank < cluster_.size(); ++rank) {
      const OpResult& result = cluster_.ranks[rank]->result(pending.tickets[rank]);
      sent += result.bytes_sent;
      if (blocks[rank] != nullptr) blocks[rank]->take_choice(result);
    }
    const Bytes first = output(pending, 0);
    for (std::uint32_t rank = 1; rank < cluster_.size(); ++rank) {
      EXPECT_EQ(output(pending, rank) == first, true) << "rank " << rank << " has other bits";
    }
    cluster_.forget_arenas();
    return first;
  }

  std::uint64_t sent = 0;                            // by the last op that was reduced
  std::vector<Tensor*> tensors;                      // by rank
  std::vector<std::unique_ptr<BlockTensor>> blocks;  // by rank; null: it has elements

 private:
  void ask_recipes(std::uint32_t rank) {
    Client& client = *cluster_.ranks[rank];
    const std::uint64_t request = client.ask_of(shm::PacketKind::tensor_recipes, tensors[rank]->id);
    EXPECT_TRUE(cluster_.await(client, request));
    const auto said = client.answer<shm::TensorRecipesPacket>(request);
    ASSERT_TRUE(said.has_value()) << client.status_of(request).detail;
    for (std::uint32_t i = 0; i < said->count; ++i) {
      blocks[rank]->recipes.push_back(codec::parse_recipe(said->recipes[i]).value());
    }
  }

  Cluster& cluster_;
  codec::Workspace workspace_;
};

}  // namespace tern::sim
