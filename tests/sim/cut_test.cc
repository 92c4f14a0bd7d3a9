// The version of a group's cut: which one holds, what it makes of results, and what becomes of
// codec state of another.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint.h"

namespace tern::sim {
namespace cut_test {

const std::vector<std::uint32_t> kRanks = {1, 2, 1};
constexpr std::uint64_t kFullChunk = 16'384;  // two, of which the second is shorter
constexpr std::uint64_t kEvenChunk = 12'288;  // three, one of each node

// `old`: which daemon holds the first cut. A daemon that knows no other is the same for its group.
DaemonShape cutting(const std::string& old) {
  DaemonShape shape;
  shape.lanes = 2;
  shape.chunk_bytes = 64 << 10;
  shape.adjust = [old](daemon::ConductorSettings& settings) {
    if (old == "all" || settings.advertise.host == old) settings.ops.cut = 1;
  };
  return shape;
}

std::uint64_t chunk_elements_of(const Bytes& part) {
  daemon::StatePartHeader header;
  std::memcpy(&header, part.data(), sizeof header);
  return header.chunk_elements;
}

class Cut : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, Cut,
                         testing::Values("raw", "ef(bf16)", "3lc:s=1", "3lc:s=1,scale=tensor",
                                         "ef(int:bits=4)", "ef21(topk:p=0.1)"));

TEST_P(Cut, ResultsAreThoseOfTheVersionThatAllNodesHave) {
  for (const char* old : {"", "node1", "all"}) {
    Nodes nodes(kRanks, GetParam(), cutting(old));
    nodes.cluster.view.cut = *old == 0 ? shm::CutVersion::even : shm::CutVersion::full;
    nodes.cluster.reference = std::make_unique<Reference>(nodes.cluster.view);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const auto inputs = inputs_of(DType::f32, kGradientCount, nodes.cluster.size(), step + 1);
      const OpRequest op = all_reduce(DType::f32, kGradientCount);
      const Bytes expected =
          nodes.cluster.reference->all_reduce(op, nodes.tensors[0], step, inputs);
      EXPECT_EQ(nodes.step(step) == expected, true) << "step " << step << ", old: " << old;
    }
    if (GetParam() == "raw") continue;
    EXPECT_EQ(chunk_elements_of(nodes.export_part(0)), *old == 0 ? kEvenChunk : kFullChunk);
  }
}

// Of all nodes, the residual of each element.
std::vector<double> residuals(Nodes& nodes) {
  std::vector<double> sums(kGradientCount, 0.0);
  for (const std::uint32_t rank : {0u, 1u, 3u}) {
    const std::vector<float> one = floats_after_header(nodes.export_part(rank));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += one[i];
  }
  return sums;
}

TEST(CutVersions, ErrorFeedbackOfAnotherCutIsFolded) {
  for (const bool to_even : {true, false}) {
    Nodes first(kRanks, "3lc:s=1", cutting(to_even ? "all" : ""));
    for (std::uint64_t step = 0; step < 3; ++step) first.step(step);
    const std::vector<double> left = residuals(first);
    std::vector<Bytes> parts;
    for (const std::uint32_t rank : {0u, 1u, 3u}) parts.push_back(first.export_part(rank));

    Nodes second(kRanks, "3lc:s=1", cutting(to_even ? "" : "all"));
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      const OpResult done = second.import_parts(rank, parts);
      EXPECT_EQ(done.status, Errc::ok) << done.detail;
    }
    const std::vector<double> taken = residuals(second);
    double most = 0.0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      EXPECT_NEAR(taken[i], left[i], 1e-6) << i;
      most = std::max(most, std::abs(left[i]));
    }
    EXPECT_GT(most, 0.0);
    second.step(3);
  }
}

TEST(CutVersions, AShiftOfAnotherCutIsRefused) {
  Nodes first(kRanks, "ef21(topk:p=0.1)", cutting("all"));
  first.step(0);
  Nodes second(kRanks, "ef21(topk:p=0.1)", cutting(""));
  EXPECT_EQ(second.import_parts(0, {first.export_part(0)}).status, Errc::state_mismatch);
}

}  // namespace cut_test
}  // namespace tern::sim
