// Ops that travel with their announcements, where contributions are blocks there: the bits of
// results, what the residuals do, and what becomes of state of the other form.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "checkpoint.h"

namespace tern::sim {
namespace eager_blocks_test {

const std::vector<std::uint32_t> kRanks = {1, 2, 1};
const std::vector<std::uint32_t> kFirstOfNode = {0, 1, 3};
constexpr std::uint64_t kCount = 7'000;  // two chunks, which all nodes own where there are legs

// `old`: which daemon holds the first form, "all" or none. One that knows no other is the same for
// its group.
DaemonShape announcing(const std::string& old = "") {
  DaemonShape shape;
  shape.lanes = 2;
  shape.chunk_bytes = 64 << 10;
  shape.eager_bytes = 64 << 10;
  shape.adjust = [old](daemon::ConductorSettings& settings) {
    if (old == "all" || settings.advertise.host == old) settings.ops.eager_form = 1;
  };
  return shape;
}

TensorSpec small_tensor(const std::string& recipe, DType dtype = DType::f32) {
  TensorSpec spec = tensor_of(recipe);
  spec.dtype = dtype;
  spec.count = kCount;
  return spec;
}

// A cluster with one small tensor.
struct SmallNodes : Nodes {
  SmallNodes(const std::string& recipe_text, const DaemonShape& shape,
             Reduction reduction = Reduction::sum)
      : Nodes(kRanks, "raw", shape), how(reduction) {
    for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
      EXPECT_TRUE(
          cluster.await(*cluster.ranks[rank], cluster.ranks[rank]->release(tensors[rank]->id)));
    }
    TensorSpec spec = small_tensor(recipe_text);
    spec.name = "small";
    tensors = cluster.declare(spec);
  }
  std::vector<Bytes> inputs(std::uint64_t number) const {
    return inputs_of(DType::f32, kCount, cluster.size(), number + 1);
  }
  Bytes step(std::uint64_t number) {
    Bytes result = cluster.reduce(all_reduce(DType::f32, kCount, how), inputs(number), tensors);
    cluster.forget_arenas();
    return result;
  }
  std::vector<Bytes> parts() {
    std::vector<Bytes> all;
    all.reserve(kFirstOfNode.size());
    for (const std::uint32_t rank : kFirstOfNode) all.push_back(export_part(rank));
    return all;
  }

  Reduction how;
};

daemon::StatePartHeader header_of(const Bytes& part) {
  daemon::StatePartHeader header;
  std::memcpy(&header, part.data(), sizeof header);
  return header;
}

// What all nodes owe of each element, in terms of what they contribute.
std::vector<double> owed(const std::vector<Bytes>& parts, double result_worth) {
  std::vector<double> sums(kCount, 0.0);
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
INSTANTIATE_TEST_SUITE_P(Recipes, EagerBlocks,
                         testing::Values("raw", "lossless", "xordelta", "bf16", "ef(bf16)",
                                         "3lc:s=1", "3lc:s=1.75", "none(3lc:s=1)",
                                         "3lc:s=1,scale=tensor", "ef(int:bits=4)",
                                         "ef(lloyd:bits=3+huffman)", "ef(onebit)",
                                         "ef(topk:p=0.05+int:bits=8)", "ef(randk:p=0.1)",
                                         "diana(qsgd:levels=4)", "ef21(topk:p=0.1)"));

TEST_P(EagerBlocks, ResultsAreThoseOfTheFormThatAllNodesHave) {
  for (const char* old : {"", "node1", "all"}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const Reduction reduction : {Reduction::sum, Reduction::average, Reduction::max}) {
        Cluster cluster(kRanks, announcing(old));
        cluster.join();
        cluster.view.eager_blocks = *old == 0;
        cluster.reference = std::make_unique<Reference>(cluster.view);
        const auto tensors = cluster.declare(small_tensor(GetParam(), dtype));
        for (std::uint64_t step = 0; step < 4; ++step) {
          auto request = all_reduce(dtype, kCount, reduction);
          if (step == 2) request.state_scale = 0.5f;
          const auto inputs = inputs_of(dtype, kCount, cluster.size(), step + 1);
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

TEST(EagerBlocksOfAnOp, AreShorterThanItsElements) {
  SmallNodes nodes("3lc:s=1", announcing());
  const auto pending =
      nodes.cluster.submit(all_reduce(DType::f32, kCount), nodes.inputs(0), nodes.tensors);
  nodes.cluster.finish(pending);
  for (std::uint32_t rank = 0; rank < nodes.cluster.size(); ++rank) {
    const OpResult& result = nodes.cluster.result(pending, rank);
    EXPECT_EQ(result.status, Errc::ok) << result.detail;
    EXPECT_GT(result.bytes_sent, 0u);
    EXPECT_LT(result.bytes_sent, 2 * kCount * sizeof(float) / 10);  // to two others
  }
}

TEST(EagerBlocksOfAnOp, LeaveInTheResidualsWhatTheyDoNotDeliver) {
  SmallNodes nodes("ef(int:bits=4)", announcing());
  std::vector<double> missing(kCount, 0.0);
  double most = 0.0;
  for (std::uint64_t step = 0; step < 5; ++step) {
    for (const Bytes& input : nodes.inputs(step)) {
      const auto values = floats_of(DType::f32, input);
      for (std::size_t i = 0; i < kCount; ++i) missing[i] += values[i];
    }
    const auto delivered = floats_of(DType::f32, nodes.step(step));
    for (std::size_t i = 0; i < kCount; ++i) missing[i] -= delivered[i];
  }
  const std::vector<double> left = owed(nodes.parts(), 1.0);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(missing[i], left[i], 1e-3) << i;
    most = std::max(most, std::abs(left[i]));
  }
  EXPECT_GT(most, 0.01);
}

TEST(EagerBlocksOfAnOp, AreAlikeOnAllRanksWithVerify) {
  Cluster cluster(kRanks, announcing());
  JoinOptions options;
  options.verify = true;
  cluster.join(options);
  const auto tensors = cluster.declare(small_tensor("3lc:s=1"));
  for (std::uint64_t step = 0; step < 3; ++step) {
    cluster.reduce(all_reduce(DType::f32, kCount),
                   inputs_of(DType::f32, kCount, cluster.size(), step + 1), tensors);
    cluster.forget_arenas();
  }
}

// `raw` for one op leaves the residual alone, and another compressor works inside it.
TEST(EagerBlocksOfAnOp, MayHaveARecipeOfTheirOwn) {
  SmallNodes nodes("3lc:s=1", announcing());
  std::uint64_t step = 0;
  for (const char* recipe : {"", "raw", "ef(int:bits=4)", "bf16", ""}) {
    const std::vector<Bytes> before = nodes.parts();
    OpRequest op = all_reduce(DType::f32, kCount);
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

TEST(EagerBlocksOfAnOp, AreElementsWhereOneIsNotFinite) {
  SmallNodes nodes("3lc:s=1", announcing());
  nodes.step(0);
  const std::vector<Bytes> before = nodes.parts();
  auto inputs = nodes.inputs(1);
  auto values = floats_of(DType::f32, inputs[1]);  // of node 1
  values[17] = std::numeric_limits<float>::quiet_NaN();
  inputs[1] = bytes_of(DType::f32, values);
  const OpRequest op = all_reduce(DType::f32, kCount);
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
  // All but the last node's announce it.
  OpRequest op = all_reduce(DType::f32, kCount);
  const auto inputs = nodes.inputs(1);
  std::vector<std::uint64_t> tickets;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    Client& client = *nodes.cluster.ranks[rank];
    op.input = op.output = client.allocate(inputs[rank].size());
    std::copy(inputs[rank].begin(), inputs[rank].end(), client.at(op.input));
    tickets.push_back(client.submit(op, nodes.tensors[rank]));
  }
  nodes.cluster.world.run_until([] { return false; }, kSecond / 100);
  nodes.cluster.ranks[0]->cancel(tickets[0]);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    Client& client = *nodes.cluster.ranks[rank];
    ASSERT_TRUE(nodes.cluster.world.run_until([&] { return client.done(tickets[rank]); }));
    EXPECT_EQ(client.result(tickets[rank]).status, Errc::cancelled);
  }
  // The last one is told when it submits.
  op.input = op.output = nodes.cluster.ranks[3]->allocate(inputs[3].size());
  const std::uint64_t late = nodes.cluster.ranks[3]->submit(op, nodes.tensors[3]);
  ASSERT_TRUE(nodes.cluster.world.run_until([&] { return nodes.cluster.ranks[3]->done(late); }));
  nodes.cluster.forget_arenas();
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
      for (std::size_t i = 0; i < kCount; ++i) EXPECT_NEAR(again[i], left[i], 1e-5) << i;
    }
    double most = 0.0;
    for (std::size_t i = 0; i < kCount; ++i) {
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
  for (std::uint32_t node = 0; node < kFirstOfNode.size(); ++node) {
    // Its own part is enough.
    const OpResult done = second.import_parts(kFirstOfNode[node], {parts[node]});
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
