// VR-DIANA (Horvath et al., arXiv:1904.05115): where each node draws one of its samples a step,
// DIANA removes the noise of the compressor and a control variate that of the draws. Both together
// reach the optimum; either alone stalls.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "stream.h"

namespace tern::codec {
namespace variance_reduction_test {

constexpr std::size_t kNodes = 8, kSamples = 16, kDimensions = 10;
constexpr double kRidge = 0.1, kRate = 0.062;
constexpr int kSteps = 4000;
using Vector = std::vector<double>;

// Ridge regression: the loss of a sample is 1/2 (<a, x> - b)^2 + ridge / 2 |x|^2. Each node has a
// truth of its own, so that neither nodes nor samples agree on an optimum.
class Ridge {
 public:
  explicit Ridge(std::uint64_t seed) {
    for (std::size_t node = 0; node < kNodes; ++node) {
      const auto truth = gaussian(kDimensions, seed + node);
      for (std::size_t j = 0; j < kSamples; ++j) {
        const auto a = gaussian(kDimensions + 1, seed + 1000 + node * kSamples + j);
        Sample sample{Vector(a.begin(), a.end() - 1), static_cast<double>(a.back())};
        for (std::size_t i = 0; i < kDimensions; ++i) {
          sample.target += sample.features[i] * static_cast<double>(truth[i]);
        }
        samples_.push_back(sample);
      }
    }
    solve();
  }

  Vector gradient(std::size_t node, std::size_t sample, const Vector& x) const {
    const Sample& one = samples_[node * kSamples + sample];
    double left = -one.target;
    for (std::size_t i = 0; i < kDimensions; ++i) left += one.features[i] * x[i];
    Vector result(kDimensions);
    for (std::size_t i = 0; i < kDimensions; ++i) {
      result[i] = left * one.features[i] + kRidge * x[i];
    }
    return result;
  }
  // ||x - x*||^2 / ||x*||^2
  double error(const Vector& x) const {
    double above = 0, below = 0;
    for (std::size_t i = 0; i < kDimensions; ++i) {
      above += (x[i] - optimum_[i]) * (x[i] - optimum_[i]);
      below += optimum_[i] * optimum_[i];
    }
    return above / below;
  }

 private:
  struct Sample {
    Vector features;
    double target;
  };

  // The normal equations, by elimination: their matrix is positive definite.
  void solve() {
    std::vector<Vector> rows(kDimensions, Vector(kDimensions + 1, 0.0));
    for (const Sample& one : samples_) {
      for (std::size_t i = 0; i < kDimensions; ++i) {
        for (std::size_t j = 0; j < kDimensions; ++j) {
          rows[i][j] += one.features[i] * one.features[j];
        }
        rows[i][i] += kRidge;
        rows[i][kDimensions] += one.features[i] * one.target;
      }
    }
    for (std::size_t i = 0; i < kDimensions; ++i) {
      for (std::size_t row = 0; row < kDimensions; ++row) {
        if (row == i) continue;
        const double factor = rows[row][i] / rows[i][i];
        for (std::size_t j = i; j <= kDimensions; ++j) rows[row][j] -= factor * rows[i][j];
      }
    }
    for (std::size_t i = 0; i < kDimensions; ++i) {
      optimum_.push_back(rows[i][kDimensions] / rows[i][i]);
    }
  }

  std::vector<Sample> samples_;
  Vector optimum_;
};

enum class Variate { none, saga, lsvrg };

// One node's gradients: of one sample, corrected by what the node remembers of all of them.
class Worker {
 public:
  Worker(const Ridge& problem, std::size_t node, Variate variate)
      : problem_(&problem), node_(node), variate_(variate), random_(500 + node) {
    refresh(Vector(kDimensions, 0.0));
  }

  std::vector<float> gradient(const Vector& x) {
    const std::size_t drawn = random_() % kSamples;
    const Vector now = problem_->gradient(node_, drawn, x);
    std::vector<float> result(kDimensions);
    for (std::size_t i = 0; i < kDimensions; ++i) {
      const double correction = variate_ == Variate::none ? 0.0 : mean_[i] - known_[drawn][i];
      result[i] = static_cast<float>(now[i] + correction);
    }
    if (variate_ == Variate::saga) {
      for (std::size_t i = 0; i < kDimensions; ++i) {
        mean_[i] += (now[i] - known_[drawn][i]) / kSamples;
      }
      known_[drawn] = now;
    }
    return result;
  }

  // The gradients of all samples at x become what is remembered (L-SVRG, by a coin of all nodes).
  void refresh(const Vector& x) {
    known_.clear();
    mean_.assign(kDimensions, 0.0);
    for (std::size_t j = 0; j < kSamples; ++j) {
      known_.push_back(problem_->gradient(node_, j, x));
      for (std::size_t i = 0; i < kDimensions; ++i) mean_[i] += known_[j][i] / kSamples;
    }
  }

 private:
  const Ridge* problem_;
  std::size_t node_;
  Variate variate_;
  std::mt19937_64 random_;
  std::vector<Vector> known_;  // by sample
  Vector mean_;                // of them
};

struct Descent {
  double last = 0;
  double smallest = INFINITY;  // of the second half of the steps
};

Descent descend(const std::string& text, Variate variate) {
  const Ridge problem(3);
  std::vector<Worker> workers;
  std::vector<Stream> streams;
  for (std::size_t node = 0; node < kNodes; ++node) {
    workers.emplace_back(problem, node, variate);
    streams.emplace_back(recipe_of(text), node, kDimensions);
  }
  std::mt19937_64 coin(77);
  Vector x(kDimensions, 0.0);
  Descent result;
  for (int step = 0; step < kSteps; ++step) {
    const bool fresh = variate == Variate::lsvrg && coin() % kSamples == 0;
    Vector mean(kDimensions, 0.0);
    for (std::size_t node = 0; node < kNodes; ++node) {
      if (fresh) workers[node].refresh(x);
      const auto heard = streams[node].send(workers[node].gradient(x));
      for (std::size_t i = 0; i < kDimensions; ++i) {
        mean[i] += static_cast<double>(heard[i]) / kNodes;
      }
    }
    for (std::size_t i = 0; i < kDimensions; ++i) x[i] -= kRate * mean[i];
    if (step >= kSteps / 2) result.smallest = std::min(result.smallest, problem.error(x));
  }
  result.last = problem.error(x);
  return result;
}

class VarianceReduction : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, VarianceReduction,
                         testing::Values("terngrad", "qsgd:levels=1,norm=2", "randk:k=5",
                                         "natural"));

TEST_P(VarianceReduction, WithDianaReachesTheOptimum) {
  const std::string diana = "diana(" + GetParam() + ")";
  EXPECT_LT(descend(diana, Variate::saga).last, 1e-12);
  EXPECT_LT(descend(diana, Variate::lsvrg).last, 1e-12);
}

TEST_P(VarianceReduction, AndDianaAloneStall) {
  const std::string diana = "diana(" + GetParam() + ")", none = "none(" + GetParam() + ")";
  EXPECT_GT(descend(diana, Variate::none).smallest, 5e-3);
  EXPECT_GT(descend(none, Variate::none).smallest, 5e-3);
  // What is left of the compressor's noise alone goes with its variance, least of natural.
  EXPECT_GT(descend(none, Variate::saga).smallest, 1e-4);
}

}  // namespace variance_reduction_test
}  // namespace tern::codec
