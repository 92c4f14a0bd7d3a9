#include "base/random.h"
#include "quantizing.h"

namespace tern::codec::quantizer {
namespace qsgd_test {

Params qsgd(std::uint16_t levels, bool two_norm, std::uint32_t block = 0) {
  return {.kind = Kind::qsgd, .levels = levels, .block = block, .two_norm = two_norm};
}

const Params kForms[] = {qsgd(1, true),       qsgd(1, false, 64), qsgd(1, true, 4096),
                         qsgd(1, false, 96),  qsgd(4, false),     qsgd(7, true, 128),
                         qsgd(15, true, 512), qsgd(127, false),   qsgd(127, true, 320)};

TEST(Qsgd, SameBytesOnEveryTargetAndByPieces) {
  for (const Params& params : kForms) expect_same_everywhere(params);
}

TEST(Qsgd, HostileBytes) {
  for (const Params& params : kForms) expect_hostile_bytes_do_no_harm(params);
}

TEST(Qsgd, SizesOfTheForms) {
  EXPECT_EQ(sizes(qsgd(1, true, 64), 641).side, 44u);
  EXPECT_EQ(sizes(qsgd(1, true, 64), 641).body, 129u);
  EXPECT_EQ(sizes(qsgd(7, true), 641).body, 321u);
  EXPECT_EQ(sizes(qsgd(8, true), 641).body, 641u);
  EXPECT_EQ(sizes(qsgd(8, true), 641).side, 4u);
}

TEST(Qsgd, IsUnbiasedWithTheExactVariance) {
  struct Row {
    std::uint16_t levels;
    bool two_norm;
    double variance;
  };
  // Computed from (norm / s)^2 f (1 - f).
  const Row rows[] = {{1, true, 51.5118},    {2, true, 11.9057},    {4, true, 2.99630},
                      {15, true, 0.210202},  {127, true, 0.002893}, {1, false, 19.25},
                      {2, false, 4.25},      {4, false, 0.75},      {15, false, 0.0855556},
                      {127, false, 0.001194}};
  for (const Row& row : rows) {
    SCOPED_TRACE(testing::Message() << row.levels << ' ' << row.two_norm);
    const Params params = qsgd(row.levels, row.two_norm);
    const Drawn drawn = draw_many(params, kVector);
    EXPECT_NEAR(drawn.variance, row.variance, 0.05 * row.variance);
    const double norm = row.two_norm ? std::sqrt(38.75) : 4.0;
    for (std::size_t i = 0; i < kVector.size(); ++i) {
      const double x = static_cast<double>(kVector[i]);
      const double t = std::fabs(x) / norm * row.levels;
      const double f = t - std::floor(t);
      const double sigma = norm / row.levels * std::sqrt(f * (1.0 - f));
      EXPECT_LE(std::fabs(drawn.mean[i] - x), 5.0 * sigma / std::sqrt(kDraws) + 1e-6) << i;
    }
    EXPECT_LE(row.variance, omega(params, 8) * 38.75);
  }
}

TEST(Qsgd, OmegaOfOneLevelIsReached) {
  // x = (1, t, ..., t) with t = 1 / (1 + sqrt(b)) is the worst for the largest magnitude.
  std::vector<float> worst(16, 0.2f);
  worst[0] = 1.0f;
  EXPECT_DOUBLE_EQ(omega(qsgd(1, false), 16), 1.5);
  EXPECT_NEAR(draw_many(qsgd(1, false), worst).variance, 1.5 * energy(worst), 0.05 * 1.5 * 1.6);
  EXPECT_DOUBLE_EQ(omega(qsgd(4, true, 64), 1000), 2.0);
  EXPECT_DOUBLE_EQ(omega(qsgd(4, true, 64), 16), 1.0);
}

TEST(Qsgd, ContractsByOneOverOnePlusOmega) {
  for (const Params& params : {qsgd(1, true), qsgd(1, false), qsgd(2, true), qsgd(4, false)}) {
    for (const auto& values : {kVector, gaussian(8, 3), std::vector<float>(8, -1.0f)}) {
      const double left = draw_many(params, values, true).variance / energy(values);
      EXPECT_LE(left, 1.0 - 1.0 / (1.0 + omega(params, 8)) + 0.01);
    }
    // No draw leaves more than there was.
    for (std::uint64_t key = 0; key < 200; ++key) {
      const Quantized codes =
          quantized(params, kVector, {.values = {}, .key = key, .contractive = true});
      EXPECT_LE(squared_error(decoded(params, codes, 8), kVector), 38.75 * (1.0 + 1e-6));
    }
  }
}

TEST(Qsgd, DrawsByKeyAndPosition) {
  const auto values = gaussian(3000, 1);
  const Params params = qsgd(4, true);
  const Quantized one = quantized(params, values, {.values = {}, .key = 5});
  EXPECT_EQ(one.body, quantized(params, values, {.values = {}, .key = 5}).body);
  EXPECT_NE(one.body, quantized(params, values, {.values = {}, .key = 6}).body);
  EXPECT_NE(one.body, quantized(params, values, {.values = {}, .key = 5, .position = 1}).body);
}

TEST(Qsgd, SpecialValues) {
  constexpr float kSmall = std::numeric_limits<float>::denorm_min();
  constexpr float kLarge = std::numeric_limits<float>::max();
  for (const Params& params : kForms) {
    const std::vector<float> zeros = {0.0f, -0.0f, 0.0f};
    EXPECT_EQ(energy(decoded(params, quantized(params, zeros), 3)), 0.0);
    const std::vector<float> small = {kSmall, -kSmall, 3 * kSmall, 0.0f, -0.0f};
    EXPECT_TRUE(quantized(params, small).ok);
    // Refused where the largest level would be decoded as infinite.
    const std::vector<float> one = {kLarge};
    const Quantized large = quantized(params, one);
    if (large.ok) {
      EXPECT_LE(std::fabs(decoded(params, large, 1)[0] / kLarge - 1.0f), 1e-6f);
    }
    // A Euclidean norm may be beyond f32 where the values are not.
    EXPECT_EQ(quantized(params, std::vector<float>(9, kLarge / 2)).ok, !params.two_norm);
  }
}

}  // namespace qsgd_test
}  // namespace tern::codec::quantizer
