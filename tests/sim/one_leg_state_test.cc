// Codec state of operations with one leg out of whole daemons and into others.

#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint.h"
#include "every_kind.h"

namespace tern::sim {
namespace one_leg_state_test {

using shm::OpKind;

const std::vector<std::uint32_t> kOnNodes = {1, 2, 1};
constexpr std::uint32_t kRankOfNode[] = {0, 1, 3};

KindCase case_of(OpKind kind) {
  KindCase c{.kind = kind, .root = 1};
  const bool shared = kind == OpKind::reduce_scatter || kind == OpKind::all_gather;
  c.counts = shared ? std::vector<std::uint64_t>(4, kGradientCount / 4)
                    : std::vector<std::uint64_t>{kGradientCount, 0, 0, 0};
  c.equal = shared;
  return c;
}

Nodes nodes_for(OpKind kind, const std::vector<std::uint32_t>& on_nodes = kOnNodes) {
  return {on_nodes, "ef(int:bits=4)", small_chunks(),
          kind == OpKind::broadcast ? Role::delta : Role::gradient};
}

// What every rank gets.
std::vector<Bytes> step(Nodes& nodes, const KindCase& c, std::uint64_t number) {
  const auto inputs = inputs_of(DType::f32, kGradientCount, 4, number + 1);
  std::vector<OpRequest> requests;
  std::vector<std::uint64_t> tickets;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    Client& client = *nodes.cluster.ranks[rank];
    OpRequest& request = requests.emplace_back(request_of(c, rank));
    request.input = client.allocate(kGradientCount * sizeof(float));
    request.output = client.allocate(kGradientCount * sizeof(float));
    std::copy(inputs[rank].begin(), inputs[rank].end(), client.at(request.input));
    tickets.push_back(client.submit(request, nodes.tensors[rank]));
  }
  std::vector<Bytes> outputs;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    Client& client = *nodes.cluster.ranks[rank];
    EXPECT_TRUE(nodes.cluster.world.run_until([&] { return client.done(tickets[rank]); }));
    EXPECT_EQ(client.result(tickets[rank]).status, Errc::ok) << client.result(tickets[rank]).detail;
    const std::byte* const at = client.at(requests[rank].output);
    outputs.emplace_back(at, at + output_of(c, rank).count * sizeof(float));
  }
  nodes.cluster.forget_arenas();
  return outputs;
}

class OneLegState : public testing::TestWithParam<OpKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, OneLegState,
                         testing::Values(OpKind::reduce, OpKind::broadcast, OpKind::reduce_scatter,
                                         OpKind::all_gather));

TEST_P(OneLegState, GoesOnWithTheSameBitsAfterARestart) {
  const KindCase c = case_of(GetParam());
  Nodes first = nodes_for(GetParam());
  for (std::uint64_t number = 0; number < 3; ++number) step(first, c, number);
  std::vector<Bytes> parts;
  for (const std::uint32_t rank : kRankOfNode) parts.push_back(first.export_part(rank));
  const auto owes = [](const Bytes& part) {
    const auto values = floats_after_header(part);
    return std::any_of(values.begin(), values.end(), [](float value) { return value != 0.0f; });
  };
  EXPECT_TRUE(std::any_of(parts.begin(), parts.end(), owes)) << "nothing was lost";

  Nodes second = nodes_for(GetParam()), empty = nodes_for(GetParam());
  const std::uint32_t node_of_rank[] = {0, 1, 1, 2};
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const OpResult done = second.import_parts(rank, {parts[node_of_rank[rank]]});
    EXPECT_EQ(done.status, Errc::ok) << done.detail;
  }
  EXPECT_EQ(second.export_part(1) == parts[1], true);
  const std::vector<Bytes> expected = step(first, c, 3);
  EXPECT_EQ(step(second, c, 3) == expected, true);
  EXPECT_EQ(step(empty, c, 3) == expected, false) << "the state makes no difference";
  EXPECT_EQ(step(second, c, 4) == step(first, c, 4), true);
}

// The part of a node that has encoded nothing yet belongs to no operation: a reduce's root, and of
// a broadcast all nodes but the root's.
TEST_P(OneLegState, TakesThePartsOfAllNodesTogether) {
  const KindCase c = case_of(GetParam());
  Nodes first = nodes_for(GetParam());
  for (std::uint64_t number = 0; number < 3; ++number) step(first, c, number);
  std::vector<Bytes> parts;
  for (const std::uint32_t rank : kRankOfNode) parts.push_back(first.export_part(rank));
  Nodes second = nodes_for(GetParam());
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const OpResult done = second.import_parts(rank, parts);
    EXPECT_EQ(done.status, Errc::ok) << done.detail;
  }
  EXPECT_EQ(step(second, c, 3) == step(first, c, 3), true);
  EXPECT_EQ(step(second, c, 4) == step(first, c, 4), true);
  // What was imported can be exported again.
  std::vector<Bytes> again;
  for (const std::uint32_t rank : kRankOfNode) again.push_back(second.export_part(rank));
  Nodes third = nodes_for(GetParam());
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const OpResult done = third.import_parts(rank, again);
    EXPECT_EQ(done.status, Errc::ok) << done.detail;
  }
  EXPECT_EQ(step(third, c, 5) == step(first, c, 5), true);
  // Of ranks on other nodes none is taken, and none beside that of an all_reduce.
  Nodes moved = nodes_for(GetParam(), {2, 1, 1});
  EXPECT_EQ(moved.import_parts(0, parts).status, Errc::state_mismatch);
  Nodes other = nodes_for(GetParam());
  other.step(0);
  EXPECT_EQ(other.import_parts(0, parts).status, Errc::state_mismatch);
}

TEST_P(OneLegState, OfAnotherKindOrPlaceIsRefused) {
  const KindCase c = case_of(GetParam());
  Nodes nodes = nodes_for(GetParam());
  step(nodes, c, 0);
  // Of a rank whose node sends, which a reduce's root does not, and of a broadcast the root alone.
  const std::uint32_t rank = GetParam() == OpKind::broadcast ? c.root : 0;
  const Bytes part = nodes.export_part(rank);
  Nodes other = nodes_for(GetParam());
  other.step(0);  // an all_reduce
  EXPECT_EQ(other.import_parts(rank, {part}).status, Errc::state_mismatch);
  EXPECT_EQ(nodes.import_parts(rank, {other.export_part(rank)}).status, Errc::state_mismatch);
  Nodes moved = nodes_for(GetParam(), {2, 1, 1});
  EXPECT_EQ(moved.import_parts(rank, {part}).status, Errc::state_mismatch);
  // Nothing was taken.
  step(moved, c, 0);
  step(nodes, c, 1);
}

TEST(OneLegStates, WithCountsAreNotMoved) {
  Nodes nodes = nodes_for(OpKind::reduce_scatter);
  KindCase c = case_of(OpKind::reduce_scatter);
  c.equal = false;
  c.counts = {kGradientCount - 10, 10, 0, 0};
  step(nodes, c, 0);
  Client& client = *nodes.cluster.ranks[0];
  const std::uint64_t at = client.allocate(4 * kGradientCount + 64);
  const std::uint64_t asked = client.move_state(nodes.tensors[0]->id, shm::StateAction::export_part,
                                                at, 4 * kGradientCount + 64);
  EXPECT_TRUE(nodes.cluster.await(client, asked));
  EXPECT_EQ(client.status_of(asked).status, Errc::unsupported);
}

}  // namespace one_leg_state_test
}  // namespace tern::sim
