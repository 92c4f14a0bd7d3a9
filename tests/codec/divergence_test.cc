// Functions on which a compressed gradient leads away from the optimum, or holds the descent on a
// line that the optimum is not on, and memories that reach it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "codec/kernels.h"
#include "codec/memory_kernels.h"
#include "stream.h"

namespace tern::codec {
namespace divergence_test {

// f_i(x) = <a_i, x>^2 + 1/4 |x|^2 on three nodes. All have their optimum at 0. On the line
// x = c (1, 1, 1) the gradient of f_i is c (2 a_i + 1/2): its largest element is -11/2 c, at i,
// although the mean of the gradients points the other way.
class Triple {
 public:
  static constexpr std::size_t kNodes = 3;
  using Point = std::array<double, kNodes>;

  static std::vector<float> gradient(std::size_t node, const Point& x) {
    const auto factor = [node](std::size_t i) { return i == node ? -3.0 : 2.0; };
    double product = 0;
    for (std::size_t i = 0; i < kNodes; ++i) product += factor(i) * x[i];
    std::vector<float> result(kNodes);
    for (std::size_t i = 0; i < kNodes; ++i) {
      result[i] = static_cast<float>(2 * product * factor(i) + x[i] / 2);
    }
    return result;
  }

  static Point descend(const char* text, std::size_t steps, double rate) {
    std::vector<Stream> streams;
    for (std::size_t node = 0; node < kNodes; ++node) {
      streams.emplace_back(recipe_of(text), node, kNodes);
    }
    Point x = {1, 1, 1};
    for (std::size_t step = 0; step < steps; ++step) {
      Point mean = {};
      for (std::size_t node = 0; node < kNodes; ++node) {
        const auto heard = streams[node].send(gradient(node, x));
        for (std::size_t i = 0; i < kNodes; ++i) mean[i] += static_cast<double>(heard[i]) / kNodes;
      }
      for (std::size_t i = 0; i < kNodes; ++i) x[i] -= rate * mean[i];
    }
    return x;
  }
};

double length(const Triple::Point& x) { return std::hypot(x[0], x[1], x[2]); }

// Each node sends -11/2 c at its own element, so that a step multiplies c by 1 + 11/6 rate.
TEST(Divergence, TopkOfGradientsLeavesTheOptimumAtTheExactRate) {
  for (const double rate : {0.1, 0.01}) {
    const double expected = std::pow(1 + 11 * rate / 6, 20);
    EXPECT_NEAR(expected, rate > 0.05 ? 28.98290856 : 1.43813348, 1e-8);
    for (const double element : Triple::descend("none(topk:k=1,exact=on)", 20, rate)) {
      EXPECT_NEAR(element, expected, 1e-5 * expected);
    }
  }
}

TEST(Divergence, TopkWithAMemoryReachesTheOptimum) {
  for (const char* const memory : {"ef", "ef21"}) {
    const std::string text = std::string(memory) + "(topk:k=1,exact=on)";
    EXPECT_LT(length(Triple::descend(text.c_str(), 4000, 0.01)), 1e-9) << memory;
  }
  EXPECT_GT(length(Triple::descend("none(topk:k=1,exact=on)", 400, 0.01)), 1000.0);
}

// The scaled sign, |x|_1 / d sign(x), in the place of a compressor. No recipe is it: `onebit` has a
// level for each sign and would send two elements of different signs without loss.
void scaled_sign(std::span<const float> x, std::span<float> out) {
  float sum = 0;
  for (const float value : x) sum += std::abs(value);
  const float level = sum / static_cast<float>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = std::copysign(level, x[i]);
}

// f(x) = 1/2 |x_1 + x_2| + |x_1 - x_2| from (1, 1), rates 1/2 / sqrt(k). The subgradient at a kink
// is that of its right side.
struct Valley {
  std::array<float, 2> x = {1, 1};

  static float side(float value) { return std::copysign(1.0f, value + 0.0f); }
  std::array<float, 2> gradient() const {
    const float sum = side(x[0] + x[1]) / 2;
    const float difference = side(x[0] - x[1]);
    return {sum + difference, sum - difference};
  }
  double value() const {
    const auto a = static_cast<double>(x[0]), b = static_cast<double>(x[1]);
    return std::abs(a + b) / 2 + std::abs(a - b);
  }
  static float rate(std::size_t step) { return 0.5f / std::sqrt(static_cast<float>(step)); }
};

// 4000 steps by the scaled sign of what the passes of error feedback give, as a block's encoder
// uses them. The residual is in units of the gradient, so a changed rate changes its scale, as
// state_scale does for an op. `visit(valley, step)` after each step.
template <typename Visit>
Valley descend_by_signs(bool with_memory, const Visit& visit) {
  const MemoryKernels& kernels = memory_kernels();
  std::vector<float> energy(std::max(kScanLanes, kResidualLanes));
  Valley valley;
  std::array<float, 2> residual = {}, sum = {}, sent = {};
  for (std::size_t step = 1; step <= 4000; ++step) {
    const auto gradient = valley.gradient();
    const float scale = step == 1 ? 1.0f : Valley::rate(step - 1) / Valley::rate(step);
    const float* const state = with_memory ? residual.data() : nullptr;
    kernels.compensate({gradient.data(), state, scale, 2}, sum.data(), energy.data());
    scaled_sign(sum, sent);
    kernels.leave(sum, sent.data(), residual.data(), energy.data());
    for (std::size_t i = 0; i < 2; ++i) valley.x[i] -= Valley::rate(step) * sent[i];
    visit(valley, step);
  }
  return valley;
}

// Without a memory the signs are always (+, -) or (-, +), which no step of whatever length leads
// out of.
TEST(Divergence, SignsWithoutAMemoryStayOnALine) {
  for (const std::string& target : target_names()) {
    const ForcedTarget forced(target);
    SCOPED_TRACE(target);
    descend_by_signs(false, [](const Valley& valley, std::size_t step) {
      ASSERT_NEAR(valley.x[0] + valley.x[1], 2.0f, 1e-4f) << step;
      ASSERT_GE(valley.value(), 1.0 - 1e-4) << step;
    });
  }
}

TEST(Divergence, SignsWithErrorFeedbackReachTheOptimum) {
  for (const std::string& target : target_names()) {
    const ForcedTarget forced(target);
    const Valley valley = descend_by_signs(true, [](const Valley&, std::size_t) {});
    // As far from 0 as the last rate is long.
    EXPECT_NEAR(valley.value(), 0.0079, 2e-4) << target;
    EXPECT_NEAR(valley.x[0], 0.0079f, 2e-4f) << target;
    EXPECT_NEAR(valley.x[1], 0.0079f, 2e-4f) << target;
  }
}

}  // namespace divergence_test
}  // namespace tern::codec
