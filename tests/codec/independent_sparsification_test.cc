// ISEGA (Mishchenko, Hanzely, Richtarik, arXiv:1901.09437): each node sends few elements of the
// difference to what it has learnt, chosen independently. It is DIANA with a random sparsifier and
// alpha = p, which this shows bit by bit.

#include <gtest/gtest.h>

#include <cmath>

#include "codec/sparsifier/sparsifier.h"
#include "codec_harness.h"

namespace tern::codec {
namespace independent_sparsification_test {

constexpr std::size_t kCount = 40;
constexpr std::uint64_t kNodes = 8;

// h += mask (g - h), and the estimate h + mask (g - h) / p, as the paper writes it. With p = 1/4
// the scaling by 4 and by 1/4 is exact, so nothing but the order of roundings could differ.
class Isega {
 public:
  std::vector<float> estimate(std::span<const float> gradient,
                              std::span<const std::uint32_t> positions) {
    std::vector<float> result = shift_;
    for (const std::uint32_t i : positions) {
      const float difference = gradient[i] - shift_[i];
      result[i] = shift_[i] + 4.0f * difference;
      shift_[i] += difference;
    }
    return result;
  }
  const std::vector<float>& shift() const { return shift_; }

 private:
  std::vector<float> shift_ = std::vector<float>(kCount, 0.0f);
};

// The same node as a sender and a reader of blocks.
class Diana {
 public:
  Diana(const Recipe& recipe, std::uint64_t node)
      : recipe_(recipe), node_(node), alpha_(shift_alpha(recipe, kCount)) {}

  std::vector<float> estimate(std::span<const float> gradient,
                              std::vector<std::uint32_t>& positions) {
    EncodeRequest request;
    request.stream_step = step_;
    request.key = mixed_key(mixed_key(31, node_), step_);
    request.alpha = alpha_;
    const auto block = encode_block(recipe_, gradient, sender_, request);
    positions.resize(kCount);
    sparsifier::Selection read;
    const auto kind = static_cast<sparsifier::Kind>(block.header.stages.sparsifier);
    EXPECT_TRUE(sparsifier::read_section({kind, block.payload, kCount}, positions.data(), read));
    positions.resize(read.kept);
    std::vector<float> out(kCount);
    const ShiftStream stream{reader_.data(), &step_, alpha_, 1.0f};
    EXPECT_EQ(decode_shifted({block.header, block.payload}, stream, out, workspace()),
              DecodeStatus::ok);
    EXPECT_EQ(bits_of(sender_), bits_of(reader_));
    return out;
  }
  const std::vector<float>& shift() const { return reader_; }

 private:
  Recipe recipe_;
  std::uint64_t node_;
  float alpha_;
  std::uint64_t step_ = 0;
  std::vector<float> sender_ = std::vector<float>(kCount, 0.0f);
  std::vector<float> reader_ = std::vector<float>(kCount, 0.0f);
};

// 1/2 sum of e_j (x_j - b_ij)^2, 1 <= e_j <= 10: no node's gradient vanishes at the optimum.
class Quadratics {
 public:
  Quadratics() {
    for (std::uint64_t node = 0; node < kNodes; ++node) {
      optima_.push_back(gaussian(kCount, 41 + node));
      for (std::size_t i = 0; i < kCount; ++i) {
        optimum_[i] += static_cast<double>(optima_[node][i]) / kNodes;
      }
    }
  }
  std::vector<float> gradient(std::uint64_t node, const std::vector<double>& x) const {
    std::vector<float> result(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      const double eigenvalue = 1.0 + 9.0 * static_cast<double>(i) / (kCount - 1);
      result[i] = static_cast<float>(eigenvalue * (x[i] - static_cast<double>(optima_[node][i])));
    }
    return result;
  }
  double error(const std::vector<double>& x) const {
    double above = 0, below = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      above += (x[i] - optimum_[i]) * (x[i] - optimum_[i]);
      below += optimum_[i] * optimum_[i];
    }
    return above / below;
  }

 private:
  std::vector<std::vector<float>> optima_;
  std::vector<double> optimum_ = std::vector<double>(kCount, 0.0);
};

class IndependentSparsification : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, IndependentSparsification,
                         testing::Values("diana(randk:p=0.25)", "diana(blocksparse:p=0.25,block=1)",
                                         "diana(blocksparse:p=0.25,block=5)"));

TEST_P(IndependentSparsification, IsegaIsDianaBitByBit) {
  const Recipe recipe = recipe_of(GetParam());
  ASSERT_EQ(shift_alpha(recipe, kCount), 0.25f);
  const Quadratics problem;
  std::vector<Isega> expected(kNodes);
  std::vector<Diana> nodes;
  for (std::uint64_t node = 0; node < kNodes; ++node) nodes.emplace_back(recipe, node);
  std::vector<double> x(kCount, 0.0);
  const double rate = 1.0 / (10.0 * (1.0 + 6.0 * 3.0 / kNodes));
  std::vector<std::vector<std::uint32_t>> masks(kNodes);
  int alike = 0;
  for (int step = 0; step < 1500; ++step) {
    std::vector<double> mean(kCount, 0.0);
    for (std::uint64_t node = 0; node < kNodes; ++node) {
      const auto gradient = problem.gradient(node, x);
      const auto heard = nodes[node].estimate(gradient, masks[node]);
      ASSERT_EQ(masks[node].size(), kCount / 4);
      ASSERT_EQ(bits_of(heard), bits_of(expected[node].estimate(gradient, masks[node]))) << step;
      ASSERT_EQ(bits_of(nodes[node].shift()), bits_of(expected[node].shift())) << step;
      for (std::size_t i = 0; i < kCount; ++i) {
        mean[i] += static_cast<double>(heard[i]) / kNodes;
      }
    }
    alike += masks[0] == masks[1] ? 1 : 0;
    for (std::size_t i = 0; i < kCount; ++i) x[i] -= rate * mean[i];
  }
  EXPECT_LT(problem.error(x), 1e-9);
  EXPECT_LT(alike, 200);  // two blocks of eight coincide once in sixteen times
}

}  // namespace independent_sparsification_test
}  // namespace tern::codec
