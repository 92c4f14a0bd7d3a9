#include "codec/pay_back.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/half.h"

namespace tern::codec {
namespace {

class PayBackTest : public ::testing::Test {
 protected:
  bool pay(DType type, float state_scale = 1.0f) {
    return pay_back({residual_.data(), state_scale, type, type}, values_);
  }

  std::vector<float> values_{1.0f, -2.0f, 60'000.0f};
  std::vector<float> residual_{0.5f, 0.25f, 0.0f};
};

TEST_F(PayBackTest, AllOfItInF32) {
  ASSERT_TRUE(pay(DType::f32, 0.5f));
  EXPECT_EQ(values_, (std::vector<float>{1.25f, -1.875f, 60'000.0f}));
  EXPECT_EQ(residual_, std::vector<float>(3, 0.0f));
}

TEST_F(PayBackTest, WhatRoundingTakesAwayIsOwedStill) {
  residual_ = {0.001f, 0.25f, 7.0f};
  for (const DType type : {DType::bf16, DType::f16}) {
    const auto values = values_;
    const auto residual = residual_;
    ASSERT_TRUE(pay(type));
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values_[i], round_to_dtype(type, values_[i]));
      EXPECT_EQ(values_[i] + residual_[i], values[i] + residual[i]);
    }
  }
  EXPECT_NE(residual_[2], 0.0f);
}

TEST_F(PayBackTest, NothingWhereAValueWouldBeInfinite) {
  residual_[2] = 10'000.0f;  // f16 ends at 65,504
  const auto values = values_;
  const auto residual = residual_;
  EXPECT_FALSE(pay(DType::f16));
  EXPECT_EQ(values_, values);
  EXPECT_EQ(residual_, residual);
  EXPECT_TRUE(pay(DType::bf16));
}

TEST_F(PayBackTest, AShareOfWhatIsDeliveredMayFit) {
  residual_[2] = 10'000.0f;
  Owed owed{residual_.data(), 1.0f, DType::f32, DType::f16};
  EXPECT_FALSE(pay_back(owed, values_));
  owed.share = 0.5f;  // of an average of two
  EXPECT_TRUE(pay_back(owed, values_));
  EXPECT_EQ(values_[2], 70'000.0f);
}

TEST_F(PayBackTest, NothingIntoWhatIsNotFinite) {
  values_[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(pay(DType::f32));
  EXPECT_EQ(residual_[1], 0.25f);
  EXPECT_FALSE(pay_back({}, values_)) << "there is no residual";
}

}  // namespace
}  // namespace tern::codec
