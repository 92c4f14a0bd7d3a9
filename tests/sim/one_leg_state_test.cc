// Codec state of operations with one leg out of whole daemons and into others.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

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
  // None is taken beside that of an all_reduce.
  Nodes other = nodes_for(GetParam());
  other.step(0);
  EXPECT_EQ(other.import_parts(0, parts).status, Errc::state_mismatch);
}

TEST_P(OneLegState, OfAnotherKindIsRefused) {
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
  // Nothing was taken.
  step(nodes, c, 1);
}

// What all parts owe of each element.
std::vector<double> owed(const std::vector<Bytes>& parts) {
  std::vector<double> sums(kGradientCount, 0.0);
  for (const Bytes& part : parts) {
    for (std::size_t i = 0; i < kGradientCount; ++i) {
      float value = 0;
      std::memcpy(&value, part.data() + sizeof(daemon::StatePartHeader) + i * sizeof(float),
                  sizeof(value));
      sums[i] += value;
    }
  }
  return sums;
}

// Whether the node encodes the element: it contributes it to another node, or it is its own.
bool sends_element(const KindCase& c, const std::vector<std::uint32_t>& on_nodes,
                   std::uint32_t node, std::uint64_t element) {
  const bool has_root = c.kind == OpKind::reduce || c.kind == OpKind::broadcast;
  std::uint32_t rank =
      has_root ? c.root : static_cast<std::uint32_t>(element / (kGradientCount / 4));
  std::uint32_t owner = 0;
  while (rank >= on_nodes[owner]) rank -= on_nodes[owner++];
  const bool sums = c.kind == OpKind::reduce || c.kind == OpKind::reduce_scatter;
  return sums ? node != owner : node == owner;
}

// The rank that speaks for each node.
std::vector<std::uint32_t> first_ranks(const std::vector<std::uint32_t>& on_nodes) {
  std::vector<std::uint32_t> ranks{0};
  for (std::size_t node = 1; node < on_nodes.size(); ++node) {
    ranks.push_back(ranks.back() + on_nodes[node - 1]);
  }
  return ranks;
}

std::vector<Bytes> export_all(Nodes& nodes, const std::vector<std::uint32_t>& on_nodes) {
  std::vector<Bytes> parts;
  for (const std::uint32_t rank : first_ranks(on_nodes)) parts.push_back(nodes.export_part(rank));
  return parts;
}

void import_everywhere(Nodes& nodes, const std::vector<Bytes>& parts) {
  for (std::uint32_t rank = 0; rank < nodes.cluster.size(); ++rank) {
    const OpResult done = nodes.import_parts(rank, parts);
    ASSERT_EQ(done.status, Errc::ok) << done.detail;
  }
}

TEST_P(OneLegState, IsFoldedIntoAnotherLayoutAndNothingIsLost) {
  const KindCase c = case_of(GetParam());
  Nodes first = nodes_for(GetParam());
  for (std::uint64_t number = 0; number < 3; ++number) step(first, c, number);
  const std::vector<Bytes> parts = export_all(first, kOnNodes);
  const std::vector<double> before = owed(parts);
  EXPECT_TRUE(std::any_of(before.begin(), before.end(), [](double value) { return value != 0; }));
  for (const std::vector<std::uint32_t>& layout :
       {std::vector<std::uint32_t>{2, 2}, {1, 1, 1, 1}, {2, 1, 1}, {1, 3}}) {
    SCOPED_TRACE(testing::PrintToString(layout));
    Nodes second = nodes_for(GetParam(), layout);
    import_everywhere(second, parts);
    const std::vector<Bytes> moved = export_all(second, layout);
    const std::vector<double> after = owed(moved);
    for (std::size_t i = 0; i < kGradientCount; ++i) {
      ASSERT_NEAR(after[i], before[i], 1e-5 * (1.0 + std::abs(before[i]))) << i;
    }
    // Of each element one node owes all, and none that would never send it.
    std::vector<std::vector<float>> residuals;
    residuals.reserve(moved.size());
    for (const Bytes& part : moved) residuals.push_back(floats_after_header(part));
    for (std::size_t i = 0; i < kGradientCount; ++i) {
      std::size_t holders = 0;
      for (std::size_t node = 0; node < moved.size(); ++node) {
        if (residuals[node][i] == 0.0f) continue;
        ++holders;
        ASSERT_TRUE(sends_element(c, layout, static_cast<std::uint32_t>(node), i)) << i;
      }
      ASSERT_LE(holders, 1u) << i;
    }
    Nodes empty = nodes_for(GetParam(), layout);
    EXPECT_EQ(step(second, c, 3) == step(empty, c, 3), false) << "the state makes no difference";
  }
}

TEST_P(OneLegState, ToFoldItThePartsOfAllNodesAreNeeded) {
  const KindCase c = case_of(GetParam());
  Nodes first = nodes_for(GetParam());
  step(first, c, 0);
  std::vector<Bytes> parts = export_all(first, kOnNodes);
  parts.pop_back();
  Nodes second = nodes_for(GetParam(), {2, 2});
  const OpResult done = second.import_parts(0, parts);
  EXPECT_EQ(done.status, Errc::invalid_argument);
  EXPECT_TRUE(contains(done.detail, "the parts of all 3 nodes are needed")) << done.detail;
}

TEST(OneLegStates, ARootThatTheGroupDoesNotHaveIsNamed) {
  Nodes first = nodes_for(OpKind::reduce);
  KindCase c = case_of(OpKind::reduce);
  c.root = 3;
  step(first, c, 0);
  std::vector<Bytes> parts = export_all(first, kOnNodes);
  Nodes smaller({1, 1}, "ef(int:bits=4)");
  const OpResult done = smaller.import_parts(0, parts);
  EXPECT_EQ(done.status, Errc::state_mismatch);
  EXPECT_EQ(done.detail, "the state is of an operation with root 3, and the group has 2 ranks");
  for (Bytes& part : parts) {
    const std::uint16_t none = 0;
    std::memcpy(part.data() + offsetof(daemon::StatePartHeader, root), &none, sizeof(none));
  }
  Nodes moved = nodes_for(OpKind::reduce, {2, 2});
  const OpResult old = moved.import_parts(0, parts);
  EXPECT_EQ(old.status, Errc::state_mismatch);
  EXPECT_TRUE(contains(old.detail, "do not say which rank is the root")) << old.detail;
  // Where they belong they are taken.
  Nodes second = nodes_for(OpKind::reduce);
  EXPECT_EQ(second.import_parts(0, {parts[0]}).status, Errc::ok);
}

class StateWithCounts : public testing::TestWithParam<OpKind> {
 protected:
  KindCase c() const {
    KindCase made = case_of(GetParam());
    made.equal = false;
    made.counts = {kGradientCount - 9'010, 9'000, 0, 10};
    return made;
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, StateWithCounts,
                         testing::Values(OpKind::reduce_scatter, OpKind::all_gather));

TEST_P(StateWithCounts, GoesOnWithTheSameBitsAfterARestart) {
  Nodes first = nodes_for(GetParam());
  for (std::uint64_t number = 0; number < 3; ++number) step(first, c(), number);
  const std::vector<Bytes> parts = export_all(first, kOnNodes);
  EXPECT_EQ(parts[0].size(),
            sizeof(daemon::StatePartHeader) + kGradientCount * 4 + std::size_t{4} * 8);
  Nodes second = nodes_for(GetParam()), empty = nodes_for(GetParam());
  const std::uint32_t node_of_rank[] = {0, 1, 1, 2};
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const OpResult done = second.import_parts(rank, {parts[node_of_rank[rank]]});
    EXPECT_EQ(done.status, Errc::ok) << done.detail;
  }
  EXPECT_EQ(second.export_part(1) == parts[1], true) << "before any operation";
  const std::vector<Bytes> expected = step(first, c(), 3);
  EXPECT_EQ(step(second, c(), 3) == expected, true);
  EXPECT_EQ(step(empty, c(), 3) == expected, false) << "the state makes no difference";
}

TEST_P(StateWithCounts, IsFoldedWhereTheSameRanksAreOnOtherNodes) {
  Nodes first = nodes_for(GetParam());
  for (std::uint64_t number = 0; number < 3; ++number) step(first, c(), number);
  const std::vector<Bytes> parts = export_all(first, kOnNodes);
  Nodes second = nodes_for(GetParam(), {3, 1});
  import_everywhere(second, parts);
  const std::vector<double> before = owed(parts), after = owed(export_all(second, {3, 1}));
  for (std::size_t i = 0; i < kGradientCount; ++i) {
    ASSERT_NEAR(after[i], before[i], 1e-5 * (1.0 + std::abs(before[i]))) << i;
  }
  step(second, c(), 3);
}

// Counts of so many ranks are no counts of others: they are another generation.
TEST_P(StateWithCounts, OfAnotherNumberOfRanksIsRefused) {
  Nodes first = nodes_for(GetParam());
  step(first, c(), 0);
  const std::vector<Bytes> parts = export_all(first, kOnNodes);
  Nodes other = nodes_for(GetParam(), {1, 2});
  const OpResult done = other.import_parts(0, parts);
  EXPECT_EQ(done.status, Errc::state_mismatch);
  EXPECT_EQ(done.detail, "the part has the counts of another number of ranks than 3");
}

TEST_P(StateWithCounts, CountsThatTheHeaderDoesNotNameAreRefused) {
  Nodes first = nodes_for(GetParam());
  step(first, c(), 0);
  Bytes part = first.export_part(0);
  part[part.size() - 1] ^= std::byte{1};
  Nodes second = nodes_for(GetParam());
  const OpResult done = second.import_parts(0, {part});
  EXPECT_EQ(done.status, Errc::invalid_argument);
  EXPECT_EQ(done.detail, "the counts of a part are not those that its header names");
  EXPECT_EQ(second.import_parts(0, {first.export_part(0)}).status, Errc::ok);
}

}  // namespace one_leg_state_test
}  // namespace tern::sim
