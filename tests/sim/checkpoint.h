#pragma once

// A tensor with codec state on all ranks of a cluster, and its parts.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cluster.h"
#include "daemon/tensor/state_part.h"

namespace tern::sim {

constexpr std::uint64_t kGradientCount = 30'000;  // two chunks and a bit, so that owners differ

inline TensorSpec tensor_of(const std::string& recipe, Role role = Role::gradient) {
  TensorSpec spec;
  spec.name = "g";
  spec.count = kGradientCount;
  spec.dtype = DType::f32;
  spec.role = role;
  spec.recipe = recipe;
  return spec;
}

inline DaemonShape small_chunks() {
  DaemonShape shape;
  shape.lanes = 2;
  shape.chunk_bytes = 16 << 10;
  shape.state_ttl_ns = 60 * kSecond;
  return shape;
}

// A cluster with one tensor.
struct Nodes {
  Cluster cluster;
  std::string recipe;
  std::vector<Tensor*> tensors;

  Nodes(std::vector<std::uint32_t> ranks_of_node, const std::string& recipe_text,
        const DaemonShape& shape = small_chunks(), Role role = Role::gradient)
      : cluster(std::move(ranks_of_node), shape), recipe(recipe_text) {
    cluster.join();
    tensors = cluster.declare(tensor_of(recipe, role));
  }

  // Residuals survive this.
  void release_and_declare_anew() {
    for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
      Client& client = *cluster.ranks[rank];
      EXPECT_TRUE(cluster.await(client, client.release(tensors[rank]->id)));
    }
    // The lanes give the old tensor back.
    cluster.world.run_until([] { return false; }, kSecond / 100);
    tensors = cluster.declare(tensor_of(recipe));
  }

  Bytes step(std::uint64_t number) {
    const auto inputs = inputs_of(DType::f32, kGradientCount, cluster.size(), number + 1);
    Bytes result = cluster.reduce(all_reduce(DType::f32, kGradientCount), inputs, tensors);
    cluster.forget_arenas();
    return result;
  }

  Bytes export_part(std::uint32_t rank) {
    Client& client = *cluster.ranks[rank];
    std::uint64_t request = client.move_state(tensors[rank]->id, shm::StateAction::size);
    EXPECT_TRUE(cluster.await(client, request));
    const std::uint64_t bytes = client.answer<shm::TensorStateReplyPacket>(request)->bytes;
    const std::uint64_t at = client.allocate(bytes);
    request = client.move_state(tensors[rank]->id, shm::StateAction::export_part, at, bytes);
    EXPECT_TRUE(cluster.await(client, request));
    EXPECT_EQ(client.status_of(request).detail, "");
    Bytes part(client.at(at), client.at(at) + bytes);
    client.forget_arena();
    return part;
  }

  OpResult import_parts(std::uint32_t rank, const std::vector<Bytes>& parts) {
    Client& client = *cluster.ranks[rank];
    Bytes all;
    for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
    const std::uint64_t at = client.allocate(all.size());
    std::copy(all.begin(), all.end(), client.at(at));
    const std::uint64_t request =
        client.move_state(tensors[rank]->id, shm::StateAction::import_parts, at, all.size());
    EXPECT_TRUE(cluster.await(client, request));
    client.forget_arena();
    return client.status_of(request);
  }
};

inline std::vector<float> floats_after_header(const Bytes& part) {
  std::vector<float> values((part.size() - sizeof(daemon::StatePartHeader)) / sizeof(float));
  std::memcpy(values.data(), part.data() + sizeof(daemon::StatePartHeader),
              values.size() * sizeof(float));
  return values;
}

}  // namespace tern::sim
