// What the memories of recipes are for, between whole daemons: descents that reach the optimum, or
// do not.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cluster.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kElements = 4096;
constexpr std::uint32_t kNodes = 8;

// 1/2 sum of e_j (x_j - b_ij)^2 on node i, with 1 <= e_j <= 2.
struct Problem {
  std::vector<std::vector<float>> optima;  // by node
  std::vector<double> optimum = std::vector<double>(kElements, 0.0);

  explicit Problem(bool common) {
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      optima.push_back(values_of(kElements, common ? 7 : 100 + node));
      for (std::uint64_t i = 0; i < kElements; ++i) {
        optimum[i] += static_cast<double>(optima[node][i]) / kNodes;
      }
    }
  }
  static double eigenvalue(std::uint64_t i) { return 1.0 + static_cast<double>(i % 64) / 63.0; }
  Bytes gradient(std::uint32_t node, const std::vector<double>& x) const {
    std::vector<float> values(kElements);
    for (std::uint64_t i = 0; i < kElements; ++i) {
      values[i] = static_cast<float>(eigenvalue(i) * (x[i] - static_cast<double>(optima[node][i])));
    }
    return bytes_of(DType::f32, values);
  }
  double error(const std::vector<double>& x) const {
    double above = 0, below = 0;
    for (std::uint64_t i = 0; i < kElements; ++i) {
      above += (x[i] - optimum[i]) * (x[i] - optimum[i]);
      below += optimum[i] * optimum[i];
    }
    return above / below;
  }
};

// The error after gradient descent whose every step is one average between eight daemons.
double descend(const std::string& recipe, const Problem& problem, int steps, double rate) {
  DaemonShape shape;
  shape.eager_bytes = 64;
  Cluster cluster(std::vector<std::uint32_t>(kNodes, 1), shape);
  cluster.join();
  TensorSpec gradient;
  gradient.name = "gradient";
  gradient.count = kElements;
  gradient.dtype = DType::f32;
  gradient.role = Role::gradient;
  gradient.recipe = recipe;
  const auto tensors = cluster.declare(gradient);
  std::vector<double> x(kElements, 0.0);
  for (int step = 0; step < steps; ++step) {
    std::vector<Bytes> gradients;
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      gradients.push_back(problem.gradient(node, x));
    }
    const auto mean = floats_of(
        DType::f32,
        cluster.reduce(all_reduce(DType::f32, kElements, Reduction::average), gradients, tensors));
    for (std::uint64_t i = 0; i < kElements; ++i) x[i] -= rate * static_cast<double>(mean[i]);
    cluster.forget_arenas();
  }
  cluster.leave_all();
  return problem.error(x);
}

TEST(Convergence, DianaReachesTheOptimumWhereDirectCompressionStalls) {
  const Problem problem(false);
  for (const std::string compressor :
       {"qsgd:levels=4,block=64", "blocksparse:p=0.25,block=64", "randk:p=0.5+natural"}) {
    EXPECT_LT(descend("diana(" + compressor + ")", problem, 250, 0.1), 1e-8) << compressor;
    EXPECT_GT(descend("none(" + compressor + ")", problem, 250, 0.1), 1e-4) << compressor;
  }
}

TEST(Convergence, Ef21ReachesTheOptimumWithTopk) {
  const Problem problem(false);
  EXPECT_LT(descend("ef21(topk:p=0.1,exact=on)", problem, 250, 0.1), 1e-6);
  EXPECT_GT(descend("none(topk:p=0.1,exact=on)", problem, 250, 0.1), 1e-3);
}

// arXiv:1901.09437: with a common optimum, one eighth of the blocks from each of eight workers,
// chosen independently, costs about twice the iterations of sending all.
TEST(Convergence, IndependentBlocksCostFewIterations) {
  const Problem problem(true);
  const double all = descend("raw", problem, 40, 0.5);
  const double some = descend("none(blocksparse:p=0.125,block=64)", problem, 120, 0.25);
  EXPECT_LT(all, 1e-9);
  EXPECT_LT(some, 1e-6);
}

}  // namespace
}  // namespace tern::sim
