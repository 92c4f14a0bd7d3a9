#pragma once

// A small cluster whose ranks are all joined, for tests that say step by step what happens.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "client.h"
#include "reference.h"
#include "world.h"

namespace tern::sim {

class Cluster {
 public:
  // ranks_of_node: how many on each daemon.
  explicit Cluster(std::vector<std::uint32_t> ranks_of_node, DaemonShape shape = {},
                   std::uint64_t seed = 1, const std::optional<SwitchShape>& network = std::nullopt)
      : world(seed, network) {
    for (std::size_t node = 0; node < ranks_of_node.size(); ++node) {
      world.add_daemon(shape);
      for (std::uint32_t i = 0; i < ranks_of_node[node]; ++i) {
        ranks.push_back(&world.connect(node, "job", shape.arena_bytes));
      }
    }
    world.actors = [this] {
      int work = 0;
      for (Client* client : ranks)
        work += client != nullptr && client->ready() ? client->poll() : 0;
      return work;
    };
    EXPECT_TRUE(world.run_until([this] {
      bool all = true;
      for (Client* client : ranks) all = all && client->ready();
      return all;
    }));
    view.lossy_min_bytes = shape.lossy_min_bytes;
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(ranks.size()); }

  std::string mint() {
    const std::uint64_t request = ranks[0]->mint();
    EXPECT_TRUE(world.run_until([&] { return ranks[0]->answered(request); }));
    return ranks[0]->answer<shm::GroupMintedPacket>(request)->id;
  }

  void join(const JoinOptions& options = {}) {
    if (id.empty()) id = mint();
    std::vector<std::uint64_t> requests;
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      requests.push_back(ranks[rank]->join(id, rank, size(), options));
    }
    view.ranks_of_node.clear();
    view.size = size();
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      ASSERT_TRUE(await(*ranks[rank], requests[rank]));
      ASSERT_TRUE(ranks[rank]->adopt_join(requests[rank], rank))
          << ranks[rank]->status_of(requests[rank]).detail;
      const auto node = static_cast<std::size_t>(ranks[rank]->group.node);
      if (view.ranks_of_node.size() <= node) view.ranks_of_node.resize(node + 1);
      view.ranks_of_node[node].push_back(rank);
    }
    view.chunk_bytes = ranks[0]->group.chunk_bytes;
    view.eager_bytes = ranks[0]->group.eager_bytes;
    reference = std::make_unique<Reference>(view);
  }

  bool await(Client& client, std::uint64_t request, std::uint64_t limit_ns = 100 * kSecond) {
    return world.run_until([&] { return client.answered(request); }, limit_ns);
  }

  // By rank.
  std::vector<Tensor*> declare(const TensorSpec& spec) {
    std::vector<Tensor*> tensors;
    for (Client* client : ranks) {
      const std::uint64_t request = client->declare(spec);
      tensors.push_back(client->adopt_declare(request, spec));
      EXPECT_NE(tensors.back(), nullptr) << client->status_of(request).detail;
    }
    return tensors;
  }

  struct Pending {
    OpRequest request;
    std::vector<std::uint64_t> tickets, outputs;
    std::vector<Bytes> inputs;
  };
  // All ranks submit; inputs by rank.
  Pending submit(OpRequest request, const std::vector<Bytes>& inputs,
                 const std::vector<Tensor*>& tensors = {}, bool in_place = false) {
    Pending pending;
    pending.request = request;
    pending.inputs = inputs;
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      Client& client = *ranks[rank];
      request.input = client.allocate(inputs[rank].size() + 64);
      request.output = in_place ? request.input : client.allocate(inputs[rank].size() + 64);
      std::copy(inputs[rank].begin(), inputs[rank].end(), client.at(request.input));
      pending.outputs.push_back(request.output);
      pending.tickets.push_back(client.submit(request, tensors.empty() ? nullptr : tensors[rank]));
    }
    return pending;
  }
  void finish(const Pending& pending) {
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      ASSERT_TRUE(world.run_until([&] { return ranks[rank]->done(pending.tickets[rank]); }))
          << "rank " << rank;
    }
  }
  const OpResult& result(const Pending& pending, std::uint32_t rank) const {
    return ranks[rank]->result(pending.tickets[rank]);
  }
  Bytes output(const Pending& pending, std::uint32_t rank) const {
    const std::byte* at = ranks[rank]->at(pending.outputs[rank]);
    return Bytes(at, at + pending.inputs[rank].size());
  }
  void expect_all(const Pending& pending, Errc code, const std::string& word = "") {
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      EXPECT_EQ(result(pending, rank).status, code)
          << "rank " << rank << ": " << result(pending, rank).detail;
      EXPECT_NE(result(pending, rank).detail.find(word), std::string::npos)
          << result(pending, rank).detail;
    }
  }
  // One op of all ranks that must succeed with the same bits everywhere; those of rank 0.
  Bytes reduce(const OpRequest& request, const std::vector<Bytes>& inputs,
               const std::vector<Tensor*>& tensors = {}, bool in_place = false) {
    const Pending pending = submit(request, inputs, tensors, in_place);
    finish(pending);
    expect_all(pending, Errc::ok);
    for (std::uint32_t rank = 1; rank < size(); ++rank) {
      EXPECT_EQ(output(pending, rank) == output(pending, 0), true)
          << "rank " << rank << " has other bits";
    }
    return output(pending, 0);
  }
  // The arenas are small; what has ended may be written over.
  void forget_arenas() {
    for (Client* client : ranks) client->forget_arena();
  }

  void leave_all() {
    for (Client* client : ranks) client->goodbye();
    EXPECT_TRUE(world.run_until([this] {
      for (Client* client : ranks) {
        if (!client->lost()) return false;
      }
      return true;
    }));
    world.run_until([this] { return world.find_leak().empty(); }, 10 * kSecond);
    EXPECT_EQ(world.find_leak(), "");
  }

  World world;
  std::vector<Client*> ranks;
  std::string id;
  GroupView view;
  std::unique_ptr<Reference> reference;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline OpRequest all_reduce(DType dtype, std::uint64_t count,
                            Reduction reduction = Reduction::sum) {
  OpRequest request;
  request.dtype = dtype;
  request.count = count;
  request.reduction = reduction;
  return request;
}

// Deterministic values for a rank, in [-1, 1).
inline std::vector<float> values_of(std::uint64_t count, std::uint64_t seed) {
  Random random(seed * 7919 + 13);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.below(20000)) * 1e-4f - 1.0f;
  return values;
}

inline std::vector<Bytes> inputs_of(DType dtype, std::uint64_t count, std::uint32_t ranks,
                                    std::uint64_t seed = 1) {
  std::vector<Bytes> inputs;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    inputs.push_back(bytes_of(dtype, values_of(count, seed * 100 + rank)));
  }
  return inputs;
}

}  // namespace tern::sim
