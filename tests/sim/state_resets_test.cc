// Codec state that begins at zero again: each time is counted, and shown in the row of the tensor.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cluster.h"
#include "tests/daemon/control/all_rows.h"
#include "wire/frame.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kResidualCount = 30'000;
constexpr std::uint64_t kKept = 60 * kSecond;  // a state_ttl

DaemonShape shape_with(std::uint64_t state_ttl_ns) {
  DaemonShape shape;
  shape.lanes = 2;
  shape.eager_bytes = 64;
  shape.state_ttl_ns = state_ttl_ns;
  return shape;
}

struct Epochs {
  Cluster cluster;
  TensorSpec spec;
  std::vector<Tensor*> tensors;

  Epochs(const std::string& recipe, std::uint64_t state_ttl_ns)
      : cluster({1, 2}, shape_with(state_ttl_ns)) {
    spec.name = "g";
    spec.count = kResidualCount;
    spec.role = Role::gradient;
    spec.recipe = recipe;
    cluster.join();
    declare();
  }

  void declare() { tensors = cluster.declare(spec); }
  void step() {
    cluster.reduce(all_reduce(DType::f32, spec.count),
                   inputs_of(DType::f32, spec.count, cluster.size()), tensors);
    cluster.forget_arenas();
  }
  void release() {
    for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
      Client& client = *cluster.ranks[rank];
      EXPECT_TRUE(cluster.await(client, client.release(tensors[rank]->id)));
    }
  }
  void let_the_lanes_let_go() { cluster.world.run_for(kSecond / 100); }
  void next_epoch() {
    for (Client* client : cluster.ranks) ASSERT_TRUE(cluster.await(*client, client->leave()));
    cluster.join();
    declare();
  }
  // The counter of a node, which its tensor's row must agree with.
  std::uint64_t counted(std::size_t node) {
    daemon::Conductor& conductor = *cluster.world.daemon(node).conductor;
    return conductor.reports().counters()["state_resets"]["value"].get<std::uint64_t>();
  }
  std::uint64_t shown(std::size_t node) {
    daemon::Conductor& conductor = *cluster.world.daemon(node).conductor;
    std::uint64_t resets = 0;
    for (const auto& row : daemon::all_rows(conductor.reports().tensors(daemon::Scope::of_all()))) {
      resets += row["resets"].get<std::uint64_t>();
    }
    return resets;
  }
  void expect_resets(std::uint64_t resets) {
    for (const std::size_t node : {0u, 1u}) {
      EXPECT_EQ(counted(node), resets) << "node " << node;
      EXPECT_EQ(shown(node), resets) << "node " << node;
    }
  }
};

TEST(StateResets, OfShiftsComeWithEveryEpoch) {
  for (const std::string recipe : {"diana(qsgd:levels=4)", "ef21(topk:p=0.1)"}) {
    for (const std::uint64_t ttl : {std::uint64_t{0}, kKept}) {
      Epochs nodes(recipe, ttl);
      nodes.step();
      nodes.expect_resets(0);
      nodes.next_epoch();
      nodes.expect_resets(1);
      nodes.step();
      nodes.expect_resets(1);
    }
  }
}

TEST(StateResets, OfResidualsComeWithAnEpochUnlessTheyAreKept) {
  for (const std::uint64_t ttl : {std::uint64_t{0}, kKept}) {
    Epochs nodes("3lc:s=1", ttl);
    nodes.step();
    nodes.next_epoch();
    nodes.expect_resets(ttl == 0 ? 1 : 0);
  }
}

TEST(StateResets, OfAResidualThatWasNotKeptLongEnough) {
  Epochs nodes("3lc:s=1", kSecond);
  nodes.step();
  for (Client* client : nodes.cluster.ranks) {
    ASSERT_TRUE(nodes.cluster.await(*client, client->leave()));
  }
  nodes.cluster.world.run_for(5 * kSecond);
  nodes.cluster.join();
  nodes.declare();
  nodes.expect_resets(1);
}

TEST(StateResets, OfLastValuesComeWithAnEpochAfterABroadcast) {
  Epochs nodes("xordelta", kKept);
  nodes.step();  // an all-reduce leaves no values
  nodes.next_epoch();
  nodes.expect_resets(0);
  OpRequest broadcast = all_reduce(DType::f32, kResidualCount);
  broadcast.kind = shm::OpKind::broadcast;
  nodes.cluster.reduce(broadcast, inputs_of(DType::f32, kResidualCount, 3), nodes.tensors);
  nodes.next_epoch();
  nodes.expect_resets(1);
}

TEST(StateResets, OfATensorThatNobodyHasUsedAreNone) {
  for (const std::string recipe : {"3lc:s=1", "diana(qsgd:levels=4)"}) {
    Epochs nodes(recipe, 0);
    nodes.next_epoch();
    nodes.expect_resets(0);
    // Below lossy_min_bytes it travels raw, and its state stays zero.
    nodes.release();
    nodes.let_the_lanes_let_go();
    nodes.spec.count = 100;
    nodes.declare();
    nodes.step();
    nodes.next_epoch();
    nodes.expect_resets(0);
  }
}

// Rank 0 alone has submitted when the epoch ends: without the others nothing was granted, and
// nothing of what its node owes was sent.
TEST(StateResets, OfAnOpThatHasNotBegunAreNone) {
  Epochs nodes("3lc:s=1", kKept);
  nodes.step();
  OpRequest request = all_reduce(DType::f32, kResidualCount);
  request.input = request.output = nodes.cluster.ranks[0]->allocate(4 * kResidualCount);
  nodes.cluster.ranks[0]->submit(request, nodes.tensors[0]);
  nodes.cluster.world.run_for(kSecond / 100);
  nodes.next_epoch();
  nodes.expect_resets(0);
}

// The epoch ends when a first contribution is on its way: nobody knows what was delivered of it.
TEST(StateResets, OfResidualsComeWithAnEpochThatEndsUnderAnOp) {
  Epochs nodes("3lc:s=1", kKept);
  nodes.step();
  bool contributed = false;
  nodes.cluster.world.tap = [&](const net::OutgoingFrame& frame) {
    const wire::FrameHeader header = wire::parse_frame_header(frame.head).header;
    contributed =
        contributed || header.kind == static_cast<std::uint8_t>(wire::FrameKind::contribution);
  };
  const auto pending = nodes.cluster.submit(
      all_reduce(DType::f32, kResidualCount),
      inputs_of(DType::f32, kResidualCount, nodes.cluster.size()), nodes.tensors);
  ASSERT_TRUE(nodes.cluster.world.run_until([&] { return contributed; }));
  nodes.next_epoch();
  nodes.cluster.expect_all(pending, Errc::group_left);
  nodes.expect_resets(1);
  // What it begins with is zero, as the reference of the new epoch does.
  nodes.cluster.forget_arenas();
  const OpRequest request = all_reduce(DType::f32, kResidualCount);
  const auto inputs = inputs_of(DType::f32, kResidualCount, nodes.cluster.size());
  const Bytes output = nodes.cluster.reduce(request, inputs, nodes.tensors);
  EXPECT_EQ(output == nodes.cluster.reference->all_reduce(request, nodes.tensors[0], 0, inputs),
            true);
}

TEST(StateResets, ComeWithAnotherSize) {
  for (const std::uint64_t ttl : {std::uint64_t{0}, kKept}) {
    Epochs nodes("3lc:s=1", ttl);
    nodes.step();
    nodes.release();
    nodes.let_the_lanes_let_go();
    nodes.spec.count = kResidualCount + 5;
    nodes.declare();
    nodes.expect_resets(1);
    nodes.step();
  }
}

TEST(StateResets, ComeWithTheSameSizeUnlessTheResidualIsKept) {
  for (const std::uint64_t ttl : {std::uint64_t{0}, kKept}) {
    Epochs nodes("3lc:s=1", ttl);
    nodes.step();
    nodes.release();
    nodes.let_the_lanes_let_go();
    nodes.declare();
    nodes.expect_resets(ttl == 0 ? 1 : 0);
  }
}

// The lanes have not let go of the old tensor when the new one is made.
TEST(StateResets, OfATensorThatIsDeclaredAgainAtOnce) {
  for (const std::uint64_t ttl : {std::uint64_t{0}, kKept}) {
    Epochs nodes("3lc:s=1", ttl);
    nodes.step();
    for (std::uint32_t rank = 0; rank < nodes.cluster.size(); ++rank) {
      nodes.cluster.ranks[rank]->release(nodes.tensors[rank]->id);
    }
    nodes.declare();
    nodes.let_the_lanes_let_go();
    nodes.expect_resets(1);
    // From here on it is as any other.
    nodes.step();
    nodes.next_epoch();
    EXPECT_EQ(nodes.counted(0), ttl == 0 ? 2u : 1u);
  }
}

TEST(StateResets, OfTheStreamsOfAnOpThatFails) {
  Epochs nodes("diana(qsgd:levels=4)", 0);
  nodes.step();
  const auto doomed = nodes.cluster.submit(
      all_reduce(DType::f32, kResidualCount),
      inputs_of(DType::f32, kResidualCount, nodes.cluster.size()), nodes.tensors);
  nodes.cluster.world.run_for(20'000);  // it is announced
  nodes.cluster.ranks[1]->cancel(doomed.tickets[1]);
  nodes.cluster.finish(doomed);
  nodes.let_the_lanes_let_go();
  ASSERT_EQ(nodes.cluster.result(doomed, 0).status, Errc::cancelled);
  for (const std::size_t node : {0u, 1u}) {
    EXPECT_GT(nodes.counted(node), 0u);
    EXPECT_EQ(nodes.counted(node), nodes.shown(node));
  }
}

}  // namespace
}  // namespace tern::sim
