// Where descents end, by the memory: DIANA and EF21 reach the optimum of quadratics, compression
// without memory stalls. Every value goes through blocks, as between two daemons.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "stream.h"

namespace tern::codec {
namespace convergence_test {

constexpr std::size_t kNodes = 8;
constexpr std::size_t kDimensions = 20;
using Vector = std::vector<double>;

// f_i(x) = 1/2 (x - b_i)' A (x - b_i), eigenvalues 1 to 10: the optimum is the mean of the b_i, and
// no node's gradient vanishes there.
struct Quadratics {
  Vector eigenvalues;
  std::vector<Vector> optima;
  Vector optimum = Vector(kDimensions, 0.0);

  explicit Quadratics(std::uint64_t seed) {
    for (std::size_t i = 0; i < kDimensions; ++i) {
      eigenvalues.push_back(1.0 + 9.0 * static_cast<double>(i) / (kDimensions - 1));
    }
    for (std::size_t node = 0; node < kNodes; ++node) {
      const auto values = gaussian(kDimensions, seed + node);
      optima.emplace_back(values.begin(), values.end());
      for (std::size_t i = 0; i < kDimensions; ++i) {
        optimum[i] += optima[node][i] / static_cast<double>(kNodes);
      }
    }
  }

  std::vector<float> gradient(std::size_t node, const Vector& x) const {
    std::vector<float> result(kDimensions);
    for (std::size_t i = 0; i < kDimensions; ++i) {
      result[i] = static_cast<float>(eigenvalues[i] * (x[i] - optima[node][i]));
    }
    return result;
  }

  // ||x - x*||^2 / ||x0 - x*||^2 with x0 = 0.
  double error(const Vector& x) const {
    double above = 0, below = 0;
    for (std::size_t i = 0; i < kDimensions; ++i) {
      above += (x[i] - optimum[i]) * (x[i] - optimum[i]);
      below += optimum[i] * optimum[i];
    }
    return above / below;
  }
};

struct Descent {
  double last = 0;      // error at the end
  double smallest = 1;  // of the errors after the first hundred steps
};

Descent descend(const std::string& text, std::size_t steps, double rate) {
  const Quadratics problem(11);
  const Recipe recipe = recipe_of(text);
  std::vector<Stream> streams;
  for (std::size_t node = 0; node < kNodes; ++node) streams.emplace_back(recipe, node, kDimensions);
  Vector x(kDimensions, 0.0);
  Descent result;
  for (std::size_t step = 0; step < steps; ++step) {
    Vector mean(kDimensions, 0.0);
    for (std::size_t node = 0; node < kNodes; ++node) {
      const auto heard = streams[node].send(problem.gradient(node, x));
      for (std::size_t i = 0; i < kDimensions; ++i) {
        mean[i] += static_cast<double>(heard[i]) / static_cast<double>(kNodes);
      }
    }
    for (std::size_t i = 0; i < kDimensions; ++i) x[i] -= rate * mean[i];
    if (!std::isfinite(problem.error(x)) || problem.error(x) > 1e15) return {1e300, 1.0};
    if (step >= 100) result.smallest = std::min(result.smallest, problem.error(x));
  }
  result.last = problem.error(x);
  return result;
}

double diana_rate(const std::string& text) {
  const double variance = omega(recipe_of(text), kDimensions);
  EXPECT_GT(variance, 0.0) << text;
  return 1.0 / (10.0 * (1.0 + 6.0 * variance / static_cast<double>(kNodes)));
}

class Unbiased : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, Unbiased,
                         testing::Values("terngrad", "qsgd:levels=1,norm=2", "randk:k=5",
                                         "randk:k=1", "natural", "randk:k=5+terngrad",
                                         "blocksparse:k=2,block=5", "qsgd:levels=4",
                                         "int:bits=4,round=stochastic"));

// Mishchenko et al., arXiv:1901.09269: with full gradients DIANA goes to the exact optimum,
// linearly; compressing the gradients themselves stops at a distance that the variance decides.
TEST_P(Unbiased, DianaConvergesWhereDirectCompressionStalls) {
  const double rate = diana_rate("none(" + GetParam() + ")");
  const std::size_t steps = GetParam() == "randk:k=1" ? 3000 : 1000;
  EXPECT_LT(descend("diana(" + GetParam() + ")", steps, rate).last, 1e-9);
  const double variance = omega(recipe_of("none(" + GetParam() + ")"), kDimensions);
  // What is left grows with the variance (1/8: natural).
  EXPECT_GT(descend("none(" + GetParam() + ")", steps, rate).smallest, variance > 1 ? 1e-3 : 1e-5);
}

// The shifts of the two ends are sums of many roundings; the error they leave does not grow.
TEST(Diana, StaysAtTheOptimum) {
  for (const std::string compressor : {"terngrad", "randk:k=5", "natural"}) {
    const double rate = diana_rate("none(" + compressor + ")");
    EXPECT_LT(descend("diana(" + compressor + ")", 20000, rate).last, 1e-11) << compressor;
  }
}

TEST(Diana, AnAlphaThatIsTooLargeBlowsUp) {
  const double rate = diana_rate("none(randk:k=1)");
  EXPECT_GT(descend("diana:alpha=1(randk:k=1)", 1000, rate).last, 1e10);
}

// Richtarik, Sokolov, Fatkhullin, "EF21": with a contractive compressor the differences vanish,
// where the compressed gradients themselves would leave an error for ever.
TEST(Ef21, ConvergesWithTopkWhereTheGradientsThemselvesDoNot) {
  for (const std::string sparsifier : {"topk:k=1,exact=on", "topk:k=5,exact=on"}) {
    EXPECT_LT(descend("ef21(" + sparsifier + ")", 3000, 0.02).last, 1e-9) << sparsifier;
    EXPECT_GT(descend("none(" + sparsifier + ")", 3000, 0.02).last, 1e-2) << sparsifier;
  }
  EXPECT_LT(descend("ef21(onebit)", 3000, 0.02).last, 1e-9);
  EXPECT_LT(descend("ef21(3lc:s=1)", 3000, 0.02).last, 1e-9);
}

// Error feedback on the gradients delays what a biased compressor drops, and so comes nearer than
// the compressor alone; only the differences of EF21 vanish.
TEST(Biased, ErrorFeedbackComesNearerAndEf21Arrives) {
  for (const std::string compressor :
       {"topk:k=1,exact=on", "topk:k=5,exact=on", "onebit", "int:bits=2", "3lc:s=1"}) {
    const double alone = descend("none(" + compressor + ")", 3000, 0.02).smallest;
    const double feedback = descend("ef(" + compressor + ")", 3000, 0.02).last;
    const double differences = descend("ef21(" + compressor + ")", 3000, 0.02).last;
    EXPECT_LT(feedback, alone / 2) << compressor;
    EXPECT_LT(differences, 1e-9) << compressor;
    EXPECT_GT(feedback, 1e-5) << compressor;
  }
}

}  // namespace convergence_test
}  // namespace tern::codec
