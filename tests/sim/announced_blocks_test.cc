// Ops whose contributions travel as blocks in their announcements, whole or chunk by chunk: what is
// alike for both.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "small_nodes.h"

namespace tern::sim {
namespace announced_blocks_test {

class AnnouncedBlocks : public testing::TestWithParam<std::uint32_t> {
 protected:
  static DaemonShape shape() { return announcing_up_to(GetParam()); }
};
// Up to 64 KiB the op fits whole; up to 32, which is 16 between three nodes, by its chunks.
INSTANTIATE_TEST_SUITE_P(UpTo, AnnouncedBlocks, testing::Values(64u << 10, 32u << 10));

TEST_P(AnnouncedBlocks, AreShorterThanTheElements) {
  SmallNodes nodes("3lc:s=1", shape());
  const auto pending =
      nodes.cluster.submit(all_reduce(DType::f32, kSmallCount), nodes.inputs(0), nodes.tensors);
  nodes.cluster.finish(pending);
  for (std::uint32_t rank = 0; rank < nodes.cluster.size(); ++rank) {
    const OpResult& result = nodes.cluster.result(pending, rank);
    EXPECT_EQ(result.status, Errc::ok) << result.detail;
    EXPECT_GT(result.bytes_sent, 0u);
    EXPECT_LT(result.bytes_sent, 2 * kSmallCount * sizeof(float) / 10);
  }
}

TEST_P(AnnouncedBlocks, AreAlikeOnAllRanksWithVerify) {
  Cluster cluster(kSmallRanks, shape());
  JoinOptions options;
  options.verify = true;
  cluster.join(options);
  const auto tensors = cluster.declare(small_tensor("3lc:s=1"));
  for (std::uint64_t step = 0; step < 3; ++step) {
    cluster.reduce(all_reduce(DType::f32, kSmallCount),
                   inputs_of(DType::f32, kSmallCount, cluster.size(), step + 1), tensors);
    cluster.forget_arenas();
  }
}

// `raw` for one op leaves the residual alone, and another compressor works inside it.
TEST_P(AnnouncedBlocks, MayHaveARecipeOfTheirOwn) {
  SmallNodes nodes("3lc:s=1", shape());
  std::uint64_t step = 0;
  for (const char* recipe : {"", "raw", "ef(int:bits=4)", "bf16", ""}) {
    const std::vector<Bytes> before = nodes.parts();
    OpRequest op = all_reduce(DType::f32, kSmallCount);
    op.recipe = recipe;
    const auto inputs = nodes.inputs(step);
    const Bytes got = nodes.cluster.reduce(op, inputs, nodes.tensors);
    const Bytes expected = nodes.cluster.reference->all_reduce(op, nodes.tensors[0], step, inputs);
    EXPECT_EQ(got == expected, true) << recipe;
    EXPECT_EQ(nodes.parts() == before, std::string(recipe) == "raw") << recipe;
    nodes.cluster.forget_arenas();
    ++step;
  }
}

}  // namespace announced_blocks_test
}  // namespace tern::sim
