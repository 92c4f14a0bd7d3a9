// Codec state out of whole daemons and into others, as a checkpoint would carry it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "checkpoint.h"
#include "daemon/tensor/state_part.h"

namespace tern::sim {
namespace {

class Checkpoint : public testing::TestWithParam<std::string> {};
// None of them draws: the numbers of uses begin anew after a restart, and with them the draws.
INSTANTIATE_TEST_SUITE_P(Recipes, Checkpoint,
                         testing::Values("3lc:s=1", "ef(int:bits=4)", "ef21(topk:p=0.1,exact=on)"));

TEST_P(Checkpoint, GoesOnWithTheSameBitsAfterARestart) {
  Nodes first({1, 2, 1}, GetParam());
  for (std::uint64_t step = 0; step < 3; ++step) first.step(step);
  const std::vector<std::uint32_t> rank_of_node = {0, 1, 3};
  std::vector<Bytes> parts;
  parts.reserve(rank_of_node.size());
  for (const std::uint32_t rank : rank_of_node) parts.push_back(first.export_part(rank));
  EXPECT_EQ(first.export_part(2) == parts[1], true) << "two ranks of a node have the same part";

  Nodes second({1, 2, 1}, GetParam());
  const std::uint32_t node_of_rank[] = {0, 1, 1, 2};
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const OpResult done = second.import_parts(rank, {parts[node_of_rank[rank]]});
    EXPECT_EQ(done.status, Errc::ok) << done.detail;
  }
  for (std::uint64_t step = 3; step < 6; ++step) {
    EXPECT_EQ(second.step(step) == first.step(step), true) << "step " << step;
  }
}

// The value that makes a part unsound is in its last chunk, so that others are taken before it.
Bytes poisoned(const Bytes& part) {
  Bytes result = part;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(result.data() + result.size() - sizeof(nan), &nan, sizeof(nan));
  return result;
}

TEST_P(Checkpoint, ARefusedImportIsMendedByAGoodOne) {
  Nodes first({1, 1, 1}, GetParam());
  for (std::uint64_t step = 0; step < 3; ++step) first.step(step);
  std::vector<Bytes> parts;
  for (std::uint32_t rank = 0; rank < 3; ++rank) parts.push_back(first.export_part(rank));

  Nodes second({1, 1, 1}, GetParam());
  second.step(7);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const OpResult refused = second.import_parts(rank, {poisoned(parts[rank])});
    EXPECT_EQ(refused.status, Errc::invalid_argument);
  }
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const OpResult done = second.import_parts(rank, {parts[rank]});
    EXPECT_EQ(done.status, Errc::ok) << done.detail;
  }
  for (std::uint64_t step = 3; step < 6; ++step) {
    EXPECT_EQ(second.step(step) == first.step(step), true) << "step " << step;
  }
}

// A tensor leaves its residual to its next declaration, but not one that was half imported.
TEST_P(Checkpoint, ATensorReleasedAfterARefusedImportBeginsFromZero) {
  Nodes nodes({1, 1}, GetParam());
  nodes.step(0);
  const Bytes part = nodes.export_part(0);
  EXPECT_EQ(nodes.import_parts(0, {poisoned(part)}).status, Errc::invalid_argument);
  nodes.release_and_declare_anew();
  const Bytes anew = nodes.export_part(0);
  ASSERT_EQ(anew.size(), part.size());
  EXPECT_TRUE(std::all_of(anew.begin() + sizeof(daemon::StatePartHeader), anew.end(),
                          [](std::byte byte) { return byte == std::byte{0}; }));
  nodes.step(1);
  nodes.step(2);
}

TEST(Checkpoint, AResidualThatWasImportedInTheEndOutlivesItsDeclaration) {
  Nodes nodes({1, 1}, "ef(int:bits=4)");
  nodes.step(0);
  const Bytes part = nodes.export_part(0);
  EXPECT_EQ(nodes.import_parts(0, {poisoned(part)}).status, Errc::invalid_argument);
  EXPECT_EQ(nodes.import_parts(0, {part}).status, Errc::ok);
  nodes.release_and_declare_anew();
  EXPECT_EQ(floats_after_header(nodes.export_part(0)), floats_after_header(part));
}

// What the headers already show to be wrong moves nothing.
TEST_P(Checkpoint, AMismatchLeavesTheStateAsItWas) {
  Nodes tried({1, 1}, GetParam()), untouched({1, 1}, GetParam());
  EXPECT_EQ(tried.step(0) == untouched.step(0), true);
  const Bytes part = tried.export_part(0);
  Bytes other_count = part, other_memory = part, short_part = part;
  other_count[offsetof(daemon::StatePartHeader, count)] ^= std::byte{1};
  other_memory[offsetof(daemon::StatePartHeader, memory)] ^= std::byte{3};
  short_part.resize(part.size() - 4);
  EXPECT_EQ(tried.import_parts(0, {other_count}).status, Errc::state_mismatch);
  EXPECT_EQ(tried.import_parts(0, {other_memory}).status, Errc::state_mismatch);
  EXPECT_EQ(tried.import_parts(0, {short_part}).status, Errc::invalid_argument);
  EXPECT_EQ(tried.import_parts(0, {part, part}).status, Errc::invalid_argument);
  EXPECT_EQ(tried.import_parts(0, {Bytes(100, std::byte{7})}).status, Errc::invalid_argument);
  EXPECT_EQ(tried.export_part(0) == part, true);
  for (std::uint64_t step = 1; step < 4; ++step) {
    EXPECT_EQ(tried.step(step) == untouched.step(step), true) << "step " << step;
  }
}

TEST(Checkpoint, ErrorFeedbackIsFoldedIntoAnotherLayout) {
  Nodes three({1, 1, 1}, "3lc:s=1");
  for (std::uint64_t step = 0; step < 3; ++step) three.step(step);
  std::vector<Bytes> parts;
  for (std::uint32_t rank = 0; rank < 3; ++rank) parts.push_back(three.export_part(rank));

  Nodes two({1, 1}, "3lc:s=1");
  std::vector<double> kept(kGradientCount, 0.0), expected(kGradientCount, 0.0);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(two.import_parts(rank, {parts[0], parts[2]}).status, Errc::invalid_argument);
    const OpResult done = two.import_parts(rank, parts);
    ASSERT_EQ(done.status, Errc::ok) << done.detail;
    const auto values = floats_after_header(two.export_part(rank));
    for (std::uint64_t i = 0; i < kGradientCount; ++i) kept[i] += static_cast<double>(values[i]);
  }
  double energy = 0;
  for (const Bytes& part : parts) {
    const auto values = floats_after_header(part);
    for (std::uint64_t i = 0; i < kGradientCount; ++i) {
      expected[i] += static_cast<double>(values[i]);
      energy += std::abs(static_cast<double>(values[i]));
    }
  }
  EXPECT_GT(energy, 100.0);
  for (std::uint64_t i = 0; i < kGradientCount; ++i) ASSERT_NEAR(kept[i], expected[i], 1e-4);
}

TEST(Checkpoint, AShiftDoesNotMoveToAnotherLayout) {
  Nodes three({1, 1, 1}, "diana(qsgd:levels=4)");
  three.step(0);
  std::vector<Bytes> parts;
  for (std::uint32_t rank = 0; rank < 3; ++rank) parts.push_back(three.export_part(rank));
  Nodes two({1, 1}, "diana(qsgd:levels=4)");
  const OpResult refused = two.import_parts(0, parts);
  EXPECT_EQ(refused.status, Errc::state_mismatch);
  EXPECT_NE(refused.detail.find("3 nodes, now 2"), std::string::npos) << refused.detail;
  Nodes other({1, 1, 1}, "3lc:s=1");
  EXPECT_EQ(other.import_parts(0, {parts[0]}).status, Errc::state_mismatch);
}

TEST(Checkpoint, ForeignBytesAreRefused) {
  Nodes nodes({1, 1}, "3lc:s=1");
  nodes.step(0);
  Bytes part = nodes.export_part(0);
  Bytes poisoned = part;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(poisoned.data() + sizeof(daemon::StatePartHeader) + 400, &nan, sizeof(nan));
  const OpResult refused = nodes.import_parts(0, {poisoned});
  EXPECT_EQ(refused.status, Errc::invalid_argument);
  EXPECT_NE(refused.detail.find("not finite"), std::string::npos);
  EXPECT_EQ(nodes.import_parts(0, {Bytes(100, std::byte{7})}).status, Errc::invalid_argument);
  ASSERT_GT(part.size(), 4u);
  part.erase(part.end() - 4, part.end());
  EXPECT_EQ(nodes.import_parts(0, {part}).status, Errc::invalid_argument);
  // Outside the arena, and too small.
  Client& client = *nodes.cluster.ranks[0];
  for (const auto& [offset, bytes] :
       {std::pair<std::uint64_t, std::uint64_t>{~std::uint64_t{0}, 64},
        {0, ~std::uint64_t{0}},
        {0, 64}}) {
    const std::uint64_t request =
        client.move_state(nodes.tensors[0]->id, shm::StateAction::export_part, offset, bytes);
    EXPECT_TRUE(nodes.cluster.await(client, request));
    EXPECT_EQ(client.status_of(request).status, Errc::invalid_argument);
  }
  nodes.step(1);
}

// One rank alone has submitted: the operation waits, and the state may move at any moment.
TEST(Checkpoint, WaitsForNoOperation) {
  Nodes nodes({1, 1}, "3lc:s=1");
  Client& client = *nodes.cluster.ranks[0];
  OpRequest request = all_reduce(DType::f32, kGradientCount);
  request.input = client.allocate(4 * kGradientCount);
  request.output = request.input;
  client.submit(request, nodes.tensors[0]);
  const std::uint64_t at = client.allocate(4 * kGradientCount + 64);
  const std::uint64_t asked = client.move_state(nodes.tensors[0]->id, shm::StateAction::export_part,
                                                at, 4 * kGradientCount + 64);
  EXPECT_TRUE(nodes.cluster.await(client, asked));
  EXPECT_EQ(client.status_of(asked).status, Errc::would_block);
}

}  // namespace
}  // namespace tern::sim
