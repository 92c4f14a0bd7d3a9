#pragma once

// A cluster with one small tensor, whose all_reduce travels with its announcements, whole or chunk
// by chunk.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint.h"

namespace tern::sim {

inline const std::vector<std::uint32_t> kSmallRanks = {1, 2, 1};  // of three nodes
inline const std::vector<std::uint32_t> kSmallFirstOfNode = {0, 1, 3};
inline constexpr std::uint64_t kSmallCount = 7'000;  // three chunks where there are legs

// A recipe of every kind.
inline const auto kSmallRecipes = testing::Values(
    "raw", "lossless", "xordelta", "bf16", "ef(bf16)", "3lc:s=1", "3lc:s=1.75", "none(3lc:s=1)",
    "3lc:s=1,scale=tensor", "ef(int:bits=4)", "ef(lloyd:bits=3+huffman)", "ef(onebit)",
    "ef(topk:p=0.05+int:bits=8)", "ef(randk:p=0.1)", "diana(qsgd:levels=4)", "ef21(topk:p=0.1)");

// Ops of up to `eager_bytes` travel with their announcements, in the newest form of them.
inline DaemonShape announcing_up_to(std::uint32_t eager_bytes) {
  DaemonShape shape;
  shape.lanes = 2;
  shape.chunk_bytes = 64 << 10;
  shape.eager_bytes = eager_bytes;
  return shape;
}
// The daemon `old`, or "all", has no newer form than this one.
inline DaemonShape with_old_form(DaemonShape shape, std::uint32_t form, const std::string& old) {
  shape.adjust = [old, form](daemon::ConductorSettings& settings) {
    if (old == "all" || settings.advertise.host == old) settings.ops.eager_form = form;
  };
  return shape;
}

inline TensorSpec small_tensor(const std::string& recipe, DType dtype = DType::f32,
                               std::uint64_t count = kSmallCount) {
  TensorSpec spec = tensor_of(recipe);
  spec.name = "small";
  spec.dtype = dtype;
  spec.count = count;
  return spec;
}

struct SmallNodes : Nodes {
  SmallNodes(const std::string& recipe_text, const DaemonShape& shape,
             Reduction reduction = Reduction::sum)
      : Nodes(kSmallRanks, "raw", shape), how(reduction) {
    for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
      EXPECT_TRUE(
          cluster.await(*cluster.ranks[rank], cluster.ranks[rank]->release(tensors[rank]->id)));
    }
    tensors = cluster.declare(small_tensor(recipe_text));
  }
  std::vector<Bytes> inputs(std::uint64_t number) const {
    return inputs_of(DType::f32, kSmallCount, cluster.size(), number + 1);
  }
  Bytes step(std::uint64_t number) {
    Bytes result =
        cluster.reduce(all_reduce(DType::f32, kSmallCount, how), inputs(number), tensors);
    cluster.forget_arenas();
    return result;
  }
  std::vector<Bytes> parts() {
    std::vector<Bytes> all;
    all.reserve(kSmallFirstOfNode.size());
    for (const std::uint32_t rank : kSmallFirstOfNode) all.push_back(export_part(rank));
    return all;
  }
  std::uint64_t submit(std::uint32_t rank, const Bytes& input) {
    Client& client = *cluster.ranks[rank];
    OpRequest op = all_reduce(DType::f32, kSmallCount, how);
    op.input = op.output = client.allocate(input.size());
    std::copy(input.begin(), input.end(), client.at(op.input));
    return client.submit(op, tensors[rank]);
  }
  // The step is announced by all nodes but the last one, whose rank comes after the op was
  // cancelled.
  void cancel_before_all_announce(std::uint64_t number) {
    const auto values = inputs(number);
    std::vector<std::uint64_t> tickets;
    for (std::uint32_t rank = 0; rank < 3; ++rank) tickets.push_back(submit(rank, values[rank]));
    cluster.world.run_until([] { return false; }, kSecond / 100);
    cluster.ranks[0]->cancel(tickets[0]);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      Client& client = *cluster.ranks[rank];
      ASSERT_TRUE(cluster.world.run_until([&] { return client.done(tickets[rank]); }));
      EXPECT_EQ(client.result(tickets[rank]).status, Errc::cancelled);
    }
    const std::uint64_t late = submit(3, values[3]);
    ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[3]->done(late); }));
    cluster.forget_arenas();
  }

  Reduction how;
};

}  // namespace tern::sim
