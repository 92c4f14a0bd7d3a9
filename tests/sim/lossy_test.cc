// Lossy recipes through whole daemons: who may be lossy, what the residuals do, what NaN does to
// them.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cluster.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kLossyCount = 10'000;

TensorSpec gradient(const std::string& recipe, DType dtype = DType::f32,
                    std::uint64_t count = kLossyCount) {
  TensorSpec spec;
  spec.name = "g";
  spec.count = count;
  spec.dtype = dtype;
  spec.role = Role::gradient;
  spec.recipe = recipe;
  return spec;
}

std::uint64_t raw_bytes(const Cluster& cluster, const Cluster::Pending& pending,
                        std::uint32_t rank) {
  return cluster.result(pending, rank).bytes_sent;
}

class Recipe : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(
    Recipes, Recipe,
    testing::Values("bf16", "ef(bf16)", "3lc:s=1", "3lc:s=1.75", "none(3lc:s=1)",
                    "3lc:s=1,scale=256", "3lc:s=1,scale=tensor", "3lc:s=1.5,layout=paper",
                    "ef(3lc:s=1+huffman)", "ef(int:bits=4)", "ef(lloyd:bits=3+huffman)",
                    "ef(onebit)", "ef(topk:p=0.05+int:bits=8)", "ef(randk:p=0.1)",
                    "none(blocksparse:p=0.25,block=64)", "none(qsgd:levels=4)",
                    "diana(qsgd:levels=4)", "diana(randk:p=0.25+qsgd:levels=4+zrun)",
                    "diana(blocksparse:p=0.25,block=64)", "ef21(topk:p=0.1,exact=on)"));

TEST_P(Recipe, ManyStepsMatchTheReferenceForEveryTypeAndReduction) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Reduction reduction : {Reduction::sum, Reduction::average}) {
      DaemonShape shape;
      shape.lanes = 2;
      Cluster cluster({1, 2, 1}, shape);
      cluster.join();
      const auto tensors = cluster.declare(gradient(GetParam(), dtype));
      for (std::uint64_t step = 0; step < 4; ++step) {
        auto request = all_reduce(dtype, kLossyCount, reduction);
        if (step == 2) request.state_scale = 0.5f;
        const auto inputs = inputs_of(dtype, kLossyCount, 4, step + 1);
        const Bytes got = cluster.reduce(request, inputs, tensors);
        EXPECT_EQ(got == cluster.reference->all_reduce(request, tensors[0], step, inputs), true)
            << dtype_name(dtype) << " " << reduction_name(reduction) << " step " << step;
        cluster.forget_arenas();
      }
      cluster.leave_all();
    }
  }
}

TEST(Lossy, TheResultDoesNotDependOnLanesOrSchedule) {
  for (const std::string recipe : {"3lc:s=1", "3lc:s=1,scale=tensor"}) {
    std::vector<Bytes> first;
    for (std::uint32_t lanes = 1; lanes <= 3; ++lanes) {
      DaemonShape shape;
      shape.lanes = lanes;
      Cluster cluster({1, 1, 1}, shape, lanes);
      cluster.join();
      const auto tensors = cluster.declare(gradient(recipe, DType::f32, 60'000));
      for (std::size_t step = 0; step < 3; ++step) {
        const Bytes got = cluster.reduce(all_reduce(DType::f32, 60'000),
                                         inputs_of(DType::f32, 60'000, 3, step), tensors);
        if (first.size() == step) first.push_back(got);
        EXPECT_EQ(got == first[step], true) << recipe << ", " << lanes << " lanes, step " << step;
        cluster.forget_arenas();
      }
    }
  }
}

// Error feedback loses nothing: what was delivered so far and what is still kept add up to the
// inputs.
TEST(Lossy, DeliveredAndResidualsTelescope) {
  Cluster cluster({1, 1, 1});
  cluster.join();
  const auto tensors = cluster.declare(gradient("3lc:s=1"));
  std::vector<double> inputs_total(kLossyCount, 0.0), delivered_total(kLossyCount, 0.0);
  constexpr std::uint64_t kSteps = 30;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const auto inputs = inputs_of(DType::f32, kLossyCount, 3, step + 1);
    const auto request = all_reduce(DType::f32, kLossyCount);
    const Bytes got = cluster.reduce(request, inputs, tensors);
    ASSERT_EQ(got == cluster.reference->all_reduce(request, tensors[0], step, inputs), true)
        << step;
    const auto delivered = floats_of(DType::f32, got);
    for (std::uint64_t i = 0; i < kLossyCount; ++i) {
      delivered_total[i] += static_cast<double>(delivered[i]);
      for (const auto& input : inputs) {
        float value = 0;
        std::memcpy(&value, input.data() + i * sizeof(value), sizeof(value));
        inputs_total[i] += static_cast<double>(value);
      }
    }
    cluster.forget_arenas();
  }
  double worst = 0, largest_residual = 0;
  for (std::uint64_t i = 0; i < kLossyCount; ++i) {
    double kept = 0;
    for (std::uint32_t node = 0; node < 3; ++node) {
      kept +=
          static_cast<double>(cluster.reference->residual(tensors[0]->id, node, kLossyCount)[i]);
    }
    largest_residual = std::max(largest_residual, std::abs(kept));
    worst = std::max(worst, std::abs(delivered_total[i] + kept - inputs_total[i]));
  }
  EXPECT_LT(worst, 1e-3);            // rounding of f32 over thirty steps
  EXPECT_GT(largest_residual, 0.1);  // and the residuals do matter
}

TEST(Lossy, ALossyOpSendsFewerBytes) {
  Cluster cluster({1, 1});
  cluster.join();
  const auto tensors = cluster.declare(gradient("3lc:s=1"));
  const auto pending = cluster.submit(all_reduce(DType::f32, kLossyCount),
                                      inputs_of(DType::f32, kLossyCount, 2), tensors);
  cluster.finish(pending);
  EXPECT_LT(raw_bytes(cluster, pending, 0), kLossyCount * 4 / 8);
}

// A model's change is no less a difference than a gradient: the same bits, and as few of them.
TEST(Lossy, ADeltaIsCompressedAsAGradientIs) {
  std::vector<Bytes> results;
  for (const Role role : {Role::gradient, Role::delta}) {
    Cluster cluster({1, 1});
    cluster.join();
    TensorSpec spec = gradient("3lc:s=1");
    spec.role = role;
    const auto tensors = cluster.declare(spec);
    const auto request = all_reduce(DType::f32, kLossyCount);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const auto inputs = inputs_of(DType::f32, kLossyCount, 2, step + 1);
      const auto pending = cluster.submit(request, inputs, tensors);
      cluster.finish(pending);
      cluster.expect_all(pending, Errc::ok);
      EXPECT_LT(raw_bytes(cluster, pending, 0), kLossyCount * 4 / 8) << role_name(role);
      const Bytes got = cluster.output(pending, 0);
      EXPECT_EQ(got == cluster.reference->all_reduce(request, tensors[0], step, inputs), true)
          << role_name(role) << " step " << step;
      results.push_back(got);
      cluster.forget_arenas();
    }
    cluster.leave_all();
  }
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_EQ(results[step] == results[step + 3], true) << step;
  }
}

struct Exempt {
  const char* name;
  Role role;
  bool exempt;
  std::uint64_t count;
  Reduction reduction;
};
class AlwaysExact : public testing::TestWithParam<Exempt> {};
INSTANTIATE_TEST_SUITE_P(
    Why, AlwaysExact,
    testing::Values(Exempt{"exempt", Role::gradient, true, kLossyCount, Reduction::sum},
                    Exempt{"small", Role::gradient, false, 200, Reduction::sum},
                    Exempt{"exact", Role::exact, false, kLossyCount, Reduction::sum},
                    Exempt{"weights", Role::weights, false, kLossyCount, Reduction::average},
                    Exempt{"max", Role::gradient, false, kLossyCount, Reduction::max}),
    [](const auto& one) { return std::string(one.param.name); });

TEST_P(AlwaysExact, TheSumIsExact) {
  DaemonShape shape;
  shape.eager_bytes = 64;
  Cluster cluster({1, 1, 1}, shape);
  cluster.join();
  TensorSpec spec = gradient("3lc:s=1.75", DType::f32, GetParam().count);
  spec.role = GetParam().role;
  spec.exempt = GetParam().exempt;
  const auto tensors = cluster.declare(spec);
  const auto request = all_reduce(DType::f32, spec.count, GetParam().reduction);
  const auto inputs = inputs_of(DType::f32, spec.count, 3);
  const Bytes got = cluster.reduce(request, inputs, tensors);
  // A tensor of the same id, hence with the same owners, that no recipe may touch.
  Tensor plain = *tensors[0];
  plain.spec.role = Role::exact;
  EXPECT_EQ(got == cluster.reference->all_reduce(request, &plain, 0, inputs), true);
}

// The floor decides what is compressed, not the size up to which ops are eager.
TEST(Lossy, ATensorThatCouldBeEagerIsCompressed) {
  DaemonShape shape;
  shape.eager_bytes = 16 << 10;
  Cluster cluster({1, 1}, shape);
  cluster.join();
  const std::uint64_t count = (shape.eager_bytes - 64) / sizeof(float);
  const auto inputs = inputs_of(DType::f32, count, 2);
  const auto request = all_reduce(DType::f32, count);
  const auto tensors = cluster.declare(gradient("3lc:s=1", DType::f32, count));
  const auto pending = cluster.submit(request, inputs, tensors);
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::ok);
  EXPECT_EQ(
      cluster.output(pending, 0) == cluster.reference->all_reduce(request, tensors[0], 0, inputs),
      true);
  const std::uint64_t sent =
      cluster.result(pending, 0).bytes_sent + cluster.result(pending, 1).bytes_sent;
  EXPECT_LT(sent, count * sizeof(float) / 8);
}

// One rank's own recipe for the op, without a word to the others: the op takes its legs for all, or
// is a block in one announcement and elements in the others.
class OneCompresses : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(EagerForms, OneCompresses, testing::Values(1, 2));

TEST_P(OneCompresses, AndAllHaveTheSameBits) {
  DaemonShape shape;
  shape.eager_bytes = 16 << 10;
  shape.adjust = [](daemon::ConductorSettings& settings) { settings.ops.eager_form = GetParam(); };
  Cluster cluster({1, 1, 1}, shape);
  cluster.join();
  const std::uint64_t count = 1000;
  const auto inputs = inputs_of(DType::f32, count, 3);
  const auto tensors = cluster.declare(gradient("none(raw)", DType::f32, count));
  for (std::uint32_t compressing = 0; compressing < 3; ++compressing) {
    std::vector<std::uint64_t> tickets, outputs;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      auto request = all_reduce(DType::f32, count);
      request.input = cluster.ranks[rank]->allocate(inputs[rank].size());
      request.output = cluster.ranks[rank]->allocate(inputs[rank].size());
      if (rank == compressing) request.recipe = "none(bf16)";
      std::copy(inputs[rank].begin(), inputs[rank].end(), cluster.ranks[rank]->at(request.input));
      outputs.push_back(request.output);
      tickets.push_back(cluster.ranks[rank]->submit(request, tensors[rank]));
    }
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      Client& client = *cluster.ranks[rank];
      ASSERT_TRUE(cluster.world.run_until([&] { return client.done(tickets[rank]); }));
      EXPECT_EQ(client.result(tickets[rank]).status, Errc::ok);
      EXPECT_EQ(std::memcmp(client.at(outputs[rank]), cluster.ranks[0]->at(outputs[0]),
                            count * sizeof(float)),
                0);
    }
    cluster.forget_arenas();
  }
  cluster.leave_all();
}

// A step that overflowed: everybody sees it, and error feedback goes on as if the step had not
// been, apart from the loss scale that the trainer halves.
TEST(Lossy, AnInfinityReachesAllRanksAndLeavesTheResidualUnhurt) {
  for (const std::string recipe : {"3lc:s=1", "ef(bf16)", "3lc:s=1,scale=tensor"}) {
    Cluster cluster({1, 1, 1});
    cluster.join();
    const auto tensors = cluster.declare(gradient(recipe));
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto request = all_reduce(DType::f32, kLossyCount);
      auto inputs = inputs_of(DType::f32, kLossyCount, 3, step + 1);
      if (step == 2) {
        auto values = values_of(kLossyCount, 5);
        for (float& value : values) value = std::numeric_limits<float>::infinity();
        inputs[1] = bytes_of(DType::f32, values);
      }
      if (step == 3) request.state_scale = 0.5f;
      const Bytes got = cluster.reduce(request, inputs, tensors);
      const auto before = cluster.reference->residual(tensors[0]->id, 1, kLossyCount);
      EXPECT_EQ(got == cluster.reference->all_reduce(request, tensors[0], step, inputs), true)
          << recipe << " step " << step;
      if (step == 2) {
        for (const float value : floats_of(DType::f32, got)) ASSERT_FALSE(std::isfinite(value));
        // Node 1's contributions were all raw; so were its sums.
        EXPECT_EQ(cluster.reference->residual(tensors[0]->id, 1, kLossyCount), before);
      }
      for (const float value : cluster.reference->residual(tensors[0]->id, 0, kLossyCount)) {
        ASSERT_TRUE(std::isfinite(value));
      }
      cluster.forget_arenas();
    }
  }
}

// Each contribution is a number of its type, and their sum is not: so does a loss scale overflow.
TEST(Lossy, ASumThatItsTypeCannotHoldIsInfiniteForAllRanks) {
  for (const std::string recipe : {"3lc:s=1", "3lc:s=1,scale=tensor", "ef(int:bits=4)"}) {
    Cluster cluster({1, 1});
    cluster.join();
    const auto tensors = cluster.declare(gradient(recipe, DType::f16));
    const auto request = all_reduce(DType::f16, kLossyCount);
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto inputs = inputs_of(DType::f16, kLossyCount, 2, step + 1);
      if (step == 1) {
        inputs.assign(2, bytes_of(DType::f16, std::vector<float>(kLossyCount, 40'000.0f)));
      }
      const Bytes got = cluster.reduce(request, inputs, tensors);
      EXPECT_EQ(got == cluster.reference->all_reduce(request, tensors[0], step, inputs), true)
          << recipe << " step " << step;
      if (step == 1) {
        for (const float value : floats_of(DType::f16, got)) ASSERT_FALSE(std::isfinite(value));
      }
      cluster.forget_arenas();
    }
  }
}

TEST(Lossy, AnOpMayOverrideTheCompressorButNotTheMemory) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    Cluster cluster({1, 2});
    cluster.join();
    const auto tensors = cluster.declare(gradient("3lc:s=1", dtype));
    std::uint64_t step = 0;
    // No tuner has this tensor: auto is raw.
    for (const std::string recipe : {"", "raw", "bf16", "ef(3lc:s=1.5)", "auto", ""}) {
      auto request = all_reduce(dtype, kLossyCount);
      request.recipe = recipe;
      const auto inputs = inputs_of(dtype, kLossyCount, 3, step + 1);
      const Bytes got = cluster.reduce(request, inputs, tensors);
      EXPECT_EQ(got == cluster.reference->all_reduce(request, tensors[0], step, inputs), true)
          << "recipe '" << recipe << "'";
      ++step;
    }
    auto request = all_reduce(dtype, kLossyCount);
    request.recipe = "ef(bf16)";
    TensorSpec spec = gradient("none(3lc:s=1)", dtype);
    spec.name = "without memory";
    const auto others = cluster.declare(spec);
    const auto pending = cluster.submit(request, inputs_of(dtype, kLossyCount, 3), others);
    cluster.finish(pending);
    cluster.expect_all(pending, Errc::bad_recipe, "memory");
    cluster.leave_all();
  }
}

}  // namespace
}  // namespace tern::sim
