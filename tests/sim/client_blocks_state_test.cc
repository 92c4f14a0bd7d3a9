// What is remembered of a tensor with client_blocks, half of it by the client.

#include <gtest/gtest.h>

#include "block_clients.h"
#include "checkpoint.h"

namespace tern::sim {
namespace client_blocks_state_test {

// A cluster of one-rank nodes in which some clients have blocks, and its parts as the clients hand
// them out.
struct BlockNodes : Nodes {
  BlockNodes(std::size_t nodes, const std::set<std::uint32_t>& with_blocks,
             const TensorSpec& of_tensor = tensor_of("3lc:s=1"),
             const DaemonShape& shape = small_chunks())
      : Nodes(std::vector<std::uint32_t>(nodes, 1), "raw", shape), spec(of_tensor) {
    for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
      Client& client = *cluster.ranks[rank];
      EXPECT_TRUE(cluster.await(client, client.release(tensors[rank]->id)));
    }
    cluster.world.run_until([] { return false; }, kSecond / 100);
    declare(with_blocks);
  }
  void declare(const std::set<std::uint32_t>& with_blocks) {
    clients.emplace(cluster, spec, with_blocks);
    tensors = clients->tensors;
    for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) take_state(rank);
  }
  // As libtern_blocks begins: with what the daemon has kept.
  void take_state(std::uint32_t rank) {
    if (BlockTensor* const own = clients->blocks[rank].get()) {
      blocks::StatePart(export_part(rank)).give(own->contributions);
    }
  }
  Bytes step(std::uint64_t number) {
    return clients->reduce(all_reduce(DType::f32, kGradientCount),
                           inputs_of(DType::f32, kGradientCount, cluster.size(), number + 1));
  }
  Bytes part(std::uint32_t rank) {
    blocks::StatePart part(export_part(rank));
    if (BlockTensor* const own = clients->blocks[rank].get()) part.take(own->contributions);
    return Bytes(part.bytes().begin(), part.bytes().end());
  }
  std::vector<Bytes> parts() {
    std::vector<Bytes> all;
    for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) all.push_back(part(rank));
    return all;
  }
  void import_all(const std::vector<Bytes>& all) {
    for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
      EXPECT_EQ(import_parts(rank, all).detail, "");
      take_state(rank);
    }
  }
  std::uint64_t resets(std::uint32_t node) {
    daemon::Conductor& conductor = *cluster.world.daemon(node).conductor;
    return conductor.reports().counters()["state_resets"]["value"].get<std::uint64_t>();
  }

  // A rank submits, and the others do not yet.
  std::uint64_t submit(std::uint32_t rank, const Bytes& input) {
    Client& client = *cluster.ranks[rank];
    BlockTensor* const own = clients->blocks[rank].get();
    OpRequest op = all_reduce(DType::f32, spec.count);
    op.has_blocks = own != nullptr;
    op.input = op.output = client.allocate(own != nullptr ? own->layout.bytes() : input.size());
    if (own != nullptr) {
      codec::Workspace workspace;
      own->contributions.encode(input, {.use = own->tensor.next_use}, own->slots(op.input),
                                workspace);
    } else {
      std::copy(input.begin(), input.end(), client.at(op.input));
    }
    return client.submit(op, clients->tensors[rank]);
  }
  void hand_over(std::uint32_t rank) {
    if (clients->blocks[rank] == nullptr) return;
    EXPECT_EQ(import_parts(rank, {part(rank)}).detail, "");
  }
  // Node 2 has lost its memory, and all join anew.
  void next_epoch(const std::set<std::uint32_t>& with_blocks) {
    for (const std::uint32_t rank : {0u, 1u}) {
      EXPECT_TRUE(cluster.await(*cluster.ranks[rank], cluster.ranks[rank]->leave()));
    }
    cluster.world.restart(2);
    cluster.ranks[2] = &cluster.world.connect(2, "job", 8 << 20);
    EXPECT_TRUE(cluster.world.run_until([&] { return cluster.ranks[2]->ready(); }));
    cluster.join();
    declare(with_blocks);
  }

  TensorSpec spec;
  std::optional<BlockClients> clients;
};

const std::set<std::uint32_t> kNone;
const std::set<std::uint32_t> kSome = {0, 2};

TEST(ClientBlocksState, HasThePartsOfElements) {
  BlockNodes elements(3, kNone);
  BlockNodes blocks(3, kSome);
  for (std::uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(elements.step(step) == blocks.step(step), true) << step;
    EXPECT_EQ(elements.parts() == blocks.parts(), true) << step;
  }
}

TEST(ClientBlocksState, MovesToAGroupWithElementsAndBack) {
  BlockNodes elements(3, kNone);
  BlockNodes blocks(3, kSome);
  BlockNodes other(3, {1});
  for (std::uint64_t step = 0; step < 2; ++step) (void)blocks.step(step);
  elements.import_all(blocks.parts());
  other.import_all(elements.parts());
  for (std::uint64_t step = 2; step < 4; ++step) {
    const Bytes expected = blocks.step(step);
    EXPECT_EQ(elements.step(step) == expected, true) << step;
    EXPECT_EQ(other.step(step) == expected, true) << step;
  }
}

// Parts of another number of nodes are folded by the daemon, for the client too.
TEST(ClientBlocksState, IsFoldedIntoAnotherLayout) {
  BlockNodes blocks(3, kSome);
  for (std::uint64_t step = 0; step < 2; ++step) (void)blocks.step(step);
  BlockNodes elements(2, kNone);
  BlockNodes fewer(2, {0});
  elements.import_all(blocks.parts());
  fewer.import_all(blocks.parts());
  EXPECT_EQ(elements.parts() == fewer.parts(), true);
  for (std::uint64_t step = 2; step < 4; ++step) {
    EXPECT_EQ(elements.step(step) == fewer.step(step), true) << step;
  }
}

// Whoever goes hands its residual over, and the next declaration goes on with it.
TEST(ClientBlocksState, IsKeptForTheNextDeclaration) {
  BlockNodes elements(3, kNone);
  BlockNodes blocks(3, kSome);
  const auto declare_anew = [](BlockNodes& nodes, const std::set<std::uint32_t>& with_blocks) {
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      if (nodes.clients->blocks[rank] != nullptr) {
        EXPECT_EQ(nodes.import_parts(rank, {nodes.part(rank)}).detail, "");
      }
      Client& client = *nodes.cluster.ranks[rank];
      EXPECT_TRUE(nodes.cluster.await(client, client.release(nodes.tensors[rank]->id)));
    }
    nodes.cluster.world.run_until([] { return false; }, kSecond / 100);
    nodes.declare(with_blocks);
  };
  for (std::uint64_t step = 0; step < 4; ++step) {
    EXPECT_EQ(elements.step(step) == blocks.step(step), true) << step;
    if (step != 1) continue;
    declare_anew(elements, kNone);
    declare_anew(blocks, {1});
    EXPECT_EQ(blocks.resets(0), 0u);
  }
}

// A client that dies takes its residual with it: what the daemon has is no state, and that is
// counted.
TEST(ClientBlocksState, IsResetAndCountedWhereItsClientHasNotHandedItOver) {
  BlockNodes blocks(3, kSome);
  (void)blocks.step(0);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    Client& client = *blocks.cluster.ranks[rank];
    EXPECT_TRUE(blocks.cluster.await(client, client.release(blocks.tensors[rank]->id)));
  }
  blocks.cluster.world.run_until([] { return false; }, kSecond / 100);
  blocks.declare(kSome);
  EXPECT_EQ(blocks.resets(0), 1u);
  EXPECT_EQ(blocks.resets(1), 0u);
  EXPECT_EQ(blocks.resets(2), 1u);
}

// A node is lost and comes back without memory; what the others owe is as it was.
TEST(ClientBlocksState, IsKeptForTheNextEpoch) {
  const auto run = [](const std::set<std::uint32_t>& with_blocks, bool hands_over) {
    BlockNodes nodes(3, with_blocks);
    Cluster& cluster = nodes.cluster;
    for (std::uint64_t step = 0; step < 2; ++step) (void)nodes.step(step);
    cluster.world.kill(2);
    cluster.ranks[2] = nullptr;
    OpRequest op = all_reduce(DType::f32, 16);
    for (const std::uint32_t rank : {0u, 1u}) {
      Client& client = *cluster.ranks[rank];
      op.input = op.output = client.allocate(64);
      const std::uint64_t ticket = client.submit(op);
      EXPECT_TRUE(cluster.world.run_until([&] { return client.done(ticket); }));
      EXPECT_EQ(client.result(ticket).status, Errc::peer_lost);
      client.forget_arena();
      if (hands_over) nodes.hand_over(rank);
    }
    nodes.next_epoch(with_blocks);
    const std::uint64_t resets = nodes.resets(0) + nodes.resets(1);
    return std::pair(std::vector{nodes.part(0), nodes.part(1)}, resets);
  };
  const auto elements = run(kNone, false);
  EXPECT_EQ(elements.second, 0u);
  const auto kept = run({0, 1}, true);
  EXPECT_EQ(kept.first == elements.first, true);
  EXPECT_EQ(kept.second, 0u);
  const auto lost = run({0, 1}, false);
  EXPECT_EQ(lost.first == elements.first, false);
  EXPECT_EQ(lost.second, 2u);
}

// What went out with an announcement may have been added elsewhere: the residual is in doubt,
// whoever keeps it.
TEST(ClientBlocksState, IsInDoubtIfAnAnnouncedOpWasInFlightAtTheEndOfTheEpoch) {
  DaemonShape shape = small_chunks();
  shape.chunk_bytes = 64 << 10;
  shape.eager_bytes = 64 << 10;
  TensorSpec spec = tensor_of("3lc:s=1");
  spec.count = 3'000;
  for (const std::set<std::uint32_t>& with_blocks : {kNone, std::set<std::uint32_t>{0, 1, 2}}) {
    BlockNodes nodes(3, with_blocks, spec, shape);
    const auto inputs = inputs_of(DType::f32, spec.count, 3);
    (void)nodes.clients->reduce(all_reduce(DType::f32, spec.count), inputs);
    const std::uint64_t tickets[] = {nodes.submit(0, inputs[0]), nodes.submit(1, inputs[1])};
    nodes.cluster.world.run_for(kSecond / 100);
    nodes.cluster.world.kill(2);
    nodes.cluster.ranks[2] = nullptr;
    for (const std::uint32_t rank : {0u, 1u}) {
      Client& client = *nodes.cluster.ranks[rank];
      ASSERT_TRUE(nodes.cluster.world.run_until([&] { return client.done(tickets[rank]); }));
      EXPECT_EQ(client.result(tickets[rank]).status, Errc::peer_lost);
      if (BlockTensor* const own = nodes.clients->blocks[rank].get()) {
        own->contributions.take_back();
      }
      client.forget_arena();
      nodes.hand_over(rank);
    }
    nodes.next_epoch(with_blocks);
    EXPECT_EQ(nodes.resets(0), 1u) << with_blocks.size();
    EXPECT_EQ(nodes.resets(1), 1u) << with_blocks.size();
  }
}

// An op that fails has taken nothing with it, also of what it had begun to send.
TEST(ClientBlocksState, IsAsItWasAfterAnOpThatFailed) {
  BlockNodes blocks(3, {0, 1, 2});
  (void)blocks.step(0);
  const std::vector<Bytes> before = blocks.parts();
  Client& client = *blocks.cluster.ranks[0];
  BlockTensor& own = *blocks.clients->blocks[0];
  const std::uint64_t ticket = blocks.submit(0, inputs_of(DType::f32, kGradientCount, 1, 7)[0]);
  client.cancel(ticket);
  ASSERT_TRUE(blocks.cluster.world.run_until([&] { return client.done(ticket); }));
  EXPECT_EQ(client.result(ticket).status, Errc::cancelled);
  EXPECT_NE(blocks.part(0) == before[0], true);
  own.contributions.take_back();
  EXPECT_EQ(blocks.part(0) == before[0], true);
}

}  // namespace client_blocks_state_test
}  // namespace tern::sim
