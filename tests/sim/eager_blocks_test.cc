// Ops that travel with their announcements, where contributions are blocks there: the bits of
// results, what the residuals do, and what becomes of state of the other form.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "small_nodes.h"

namespace tern::sim {
namespace eager_blocks_test {

// `old`: which daemon holds the first form, "all" or none. One that knows no other is the same for
// its group.
DaemonShape announcing(const std::string& old = "") {
  return with_old_form(announcing_up_to(64 << 10), 1, old);
}

daemon::StatePartHeader header_of(const Bytes& part) {
  daemon::StatePartHeader header;
  std::memcpy(&header, part.data(), sizeof header);
  return header;
}

// What all nodes owe of each element, in terms of what they contribute.
std::vector<double> owed(const std::vector<Bytes>& parts, double result_worth) {
  std::vector<double> sums(kSmallCount, 0.0);
  for (const Bytes& part : parts) {
    const daemon::StatePartHeader header = header_of(part);
    const std::vector<float> left = floats_after_header(part);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const bool owns = header.root == 0 &&
                        (i / header.chunk_elements + header.spread) % header.nodes == header.node;
      sums[i] += (owns ? result_worth : 1.0) * left[i];
    }
  }
  return sums;
}

class EagerBlocks : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, EagerBlocks, kSmallRecipes);

TEST_P(EagerBlocks, ResultsAreThoseOfTheFormThatAllNodesHave) {
  for (const char* old : {"", "node1", "all"}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const Reduction reduction : {Reduction::sum, Reduction::average, Reduction::max}) {
        Cluster cluster(kSmallRanks, announcing(old));
        cluster.join();
        cluster.view.eager_blocks = *old == 0;
        cluster.reference = std::make_unique<Reference>(cluster.view);
        const auto tensors = cluster.declare(small_tensor(GetParam(), dtype));
        for (std::uint64_t step = 0; step < 4; ++step) {
          auto request = all_reduce(dtype, kSmallCount, reduction);
          if (step == 2) request.state_scale = 0.5f;
          const auto inputs = inputs_of(dtype, kSmallCount, cluster.size(), step + 1);
          const Bytes got = cluster.reduce(request, inputs, tensors);
          EXPECT_EQ(got == cluster.reference->all_reduce(request, tensors[0], step, inputs), true)
              << dtype_name(dtype) << " " << reduction_name(reduction) << " step " << step
              << ", old: " << old;
          cluster.forget_arenas();
        }
      }
    }
  }
}

TEST(EagerBlocksOfAnOp, LeaveInTheResidualsWhatTheyDoNotDeliver) {
  SmallNodes nodes("ef(int:bits=4)", announcing());
  std::vector<double> missing(kSmallCount, 0.0);
  double most = 0.0;
  for (std::uint64_t step = 0; step < 5; ++step) {
    for (const Bytes& input : nodes.inputs(step)) {
      const auto values = floats_of(DType::f32, input);
      for (std::size_t i = 0; i < kSmallCount; ++i) missing[i] += values[i];
    }
    const auto delivered = floats_of(DType::f32, nodes.step(step));
    for (std::size_t i = 0; i < kSmallCount; ++i) missing[i] -= delivered[i];
  }
  const std::vector<double> left = owed(nodes.parts(), 1.0);
  for (std::size_t i = 0; i < kSmallCount; ++i) {
    EXPECT_NEAR(missing[i], left[i], 1e-3) << i;
    most = std::max(most, std::abs(left[i]));
  }
  EXPECT_GT(most, 0.01);
}

TEST(EagerBlocksOfAnOp, AreElementsWhereOneIsNotFinite) {
  SmallNodes nodes("3lc:s=1", announcing());
  nodes.step(0);
  const std::vector<Bytes> before = nodes.parts();
  auto inputs = nodes.inputs(1);
  auto values = floats_of(DType::f32, inputs[1]);  // of node 1
  values[17] = std::numeric_limits<float>::quiet_NaN();
  inputs[1] = bytes_of(DType::f32, values);
  const OpRequest op = all_reduce(DType::f32, kSmallCount);
  const auto got = floats_of(DType::f32, nodes.cluster.reduce(op, inputs, nodes.tensors));
  nodes.cluster.forget_arenas();
  EXPECT_TRUE(std::isnan(got[17]));
  EXPECT_TRUE(std::isfinite(got[18]));
  const std::vector<Bytes> after = nodes.parts();
  EXPECT_NE(after[0], before[0]);
  EXPECT_EQ(after[1], before[1]);
  EXPECT_NE(after[2], before[2]);
}

TEST(EagerBlocksOfAnOp, TakeNothingWithThemIfItFailsBeforeItBegins) {
  SmallNodes nodes("3lc:s=1", announcing());
  nodes.step(0);
  const std::vector<Bytes> before = nodes.parts();
  nodes.cancel_before_all_announce(1);
  EXPECT_EQ(nodes.parts(), before);
  nodes.step(1);
}

// ---- State of the other form

class FormOfState : public testing::TestWithParam<Reduction> {};
INSTANTIATE_TEST_SUITE_P(Reductions, FormOfState,
                         testing::Values(Reduction::sum, Reduction::average));

TEST_P(FormOfState, IsFolded) {
  for (const bool to_blocks : {true, false}) {
    SmallNodes first("3lc:s=1", announcing(to_blocks ? "all" : ""), GetParam());
    for (std::uint64_t step = 0; step < 3; ++step) first.step(step);
    const std::vector<Bytes> parts = first.parts();
    const double worth = GetParam() == Reduction::average ? first.cluster.size() : 1.0;
    const std::vector<double> left = owed(parts, worth);
    SmallNodes second("3lc:s=1", announcing(to_blocks ? "" : "all"), GetParam());
    for (std::uint32_t rank = 0; rank < second.cluster.size(); ++rank) {
      const OpResult done = second.import_parts(rank, parts);
      EXPECT_EQ(done.status, Errc::ok) << done.detail;
    }
    const std::vector<double> taken = owed(second.parts(), worth);
    if (!to_blocks) {
      // And back, without an operation in between.
      SmallNodes third("3lc:s=1", announcing(), GetParam());
      const std::vector<Bytes> back = second.parts();
      for (std::uint32_t rank = 0; rank < third.cluster.size(); ++rank) {
        EXPECT_EQ(third.import_parts(rank, back).status, Errc::ok);
      }
      const std::vector<double> again = owed(third.parts(), 1.0);
      for (std::size_t i = 0; i < kSmallCount; ++i) EXPECT_NEAR(again[i], left[i], 1e-5) << i;
    }
    double most = 0.0;
    for (std::size_t i = 0; i < kSmallCount; ++i) {
      EXPECT_NEAR(taken[i], left[i], 1e-5) << i << ", to blocks: " << to_blocks;
      most = std::max(most, std::abs(left[i]));
    }
    EXPECT_GT(most, 0.0);
    second.step(3);
  }
}

TEST_P(FormOfState, GoesOnWhereItWasWithTheSameForm) {
  SmallNodes first("3lc:s=1", announcing(), GetParam());
  for (std::uint64_t step = 0; step < 2; ++step) first.step(step);
  const std::vector<Bytes> parts = first.parts();
  SmallNodes second("3lc:s=1", announcing(), GetParam());
  for (std::uint32_t node = 0; node < kSmallFirstOfNode.size(); ++node) {
    // Its own part is enough.
    const OpResult done = second.import_parts(kSmallFirstOfNode[node], {parts[node]});
    EXPECT_EQ(done.status, Errc::ok) << done.detail;
  }
  // What results are averages of is known before the next one.
  const std::vector<Bytes> again = second.parts();
  EXPECT_EQ(again, parts);
  EXPECT_EQ(second.step(2) == first.step(2), true);
  EXPECT_EQ(second.import_parts(2, {parts[0]}).status, Errc::invalid_argument)
      << "of another node alone";
}

}  // namespace eager_blocks_test
}  // namespace tern::sim
