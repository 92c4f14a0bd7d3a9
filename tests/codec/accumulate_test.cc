#include "codec/accumulate.h"

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "codec_harness.h"

namespace tern::codec {
namespace accumulate_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Accumulate : public testing::TestWithParam<std::string> {
 protected:
  ForcedTarget target_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Targets, Accumulate, testing::ValuesIn(target_names()),
                         [](const auto& param) { return param.param; });

// The elements as bytes, one byte off any alignment.
template <typename T>
class OddBytes {
 public:
  explicit OddBytes(const std::vector<T>& values) : count_(values.size()), bytes_(1) {
    const auto* const begin = reinterpret_cast<const std::byte*>(values.data());
    bytes_.insert(bytes_.end(), begin, begin + sizeof(T) * count_);
  }
  std::byte* data() { return bytes_.data() + 1; }
  std::vector<T> values() const {
    std::vector<T> out(count_);
    if (count_ != 0) std::memcpy(out.data(), bytes_.data() + 1, count_ * sizeof(T));
    return out;
  }

 private:
  std::size_t count_;
  std::vector<std::byte> bytes_;
};

template <typename Sum, typename T>
std::vector<T> reduce(DType dtype, Reduction reduction, const std::vector<std::vector<T>>& ranks,
                      float prescale = 1.0f) {
  const std::size_t count = ranks[0].size();
  std::vector<Sum> sums(count);
  accumulate_begin({dtype, OddBytes<T>(ranks[0]).data(), count}, prescale, sums.data());
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    accumulate(reduction, {dtype, OddBytes<T>(ranks[rank]).data(), count}, prescale, sums.data());
  }
  OddBytes<T> out{std::vector<T>(count)};
  accumulate_finish(reduction, sums.data(), static_cast<std::uint32_t>(ranks.size()),
                    {dtype, out.data(), count});
  return out.values();
}

TEST(AccumulateTypes, BytesPerElement) {
  EXPECT_EQ(accumulator_bytes(DType::f32), 4u);
  EXPECT_EQ(accumulator_bytes(DType::f16), 4u);
  EXPECT_EQ(accumulator_bytes(DType::bf16), 4u);
  EXPECT_EQ(accumulator_bytes(DType::f64), 8u);
  EXPECT_EQ(accumulator_bytes(DType::i64), 8u);
  EXPECT_EQ(accumulator_bytes(DType::i32), 4u);
  EXPECT_EQ(accumulator_bytes(DType::u8), 1u);
}

TEST(Half, EveryF16RoundTrips) {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(half));
    const bool nan = (half & 0x7fffu) > 0x7c00u;
    EXPECT_EQ(std::isnan(value), nan);
    EXPECT_EQ(f32_to_f16(value), nan ? (half | 0x200u) : half);
  }
  EXPECT_EQ(f16_to_f32(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_f32(0x7bff), 65504.0f);
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24f);
}

// Between neighbours the nearer one wins, and of two equally near the even one.
TEST(Half, F16RoundsToNearestEven) {
  for (std::uint16_t half = 0; half < 0x7bff; ++half) {
    const float low = f16_to_f32(half);
    const float high = f16_to_f32(static_cast<std::uint16_t>(half + 1));
    const float middle = (low + high) / 2;
    const auto even = static_cast<std::uint16_t>(half + (half & 1));
    ASSERT_EQ(f32_to_f16(middle), even);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, kInfinity)), half + 1);
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000);
  }
  EXPECT_EQ(f32_to_f16(65519.99f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(kInfinity), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e-30f), 0x8000);
}

TEST(Half, Bf16RoundsToNearestEven) {
  for (std::uint32_t half = 0; half < 0x7f80; ++half) {
    const std::uint32_t bits = half << 16;
    const auto at = [&](std::uint32_t low) {
      return f32_to_bf16(std::bit_cast<float>(bits | low));
    };
    ASSERT_EQ(at(0), half);
    ASSERT_EQ(at(0x7fff), half);
    ASSERT_EQ(at(0x8000), half + (half & 1));
    ASSERT_EQ(at(0x8001), half + 1);
  }
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(kNan))));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST_P(Accumulate, ConversionsEqualTheScalarOnes) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::mt19937_64 engine(4);
  std::vector<float> values(200001);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(engine()));
  for (std::size_t i = 0; i < 65536; ++i) {
    values[i] = f16_to_f32(static_cast<std::uint16_t>(i)) *
                (1.0f + 0x1p-11f * static_cast<float>(engine() % 3));
  }
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<float> wide(halves.size());
    to_f32(dtype, OddBytes<std::uint16_t>(halves).data(), halves.size(), wide.data());
    OddBytes<std::uint16_t> narrow{std::vector<std::uint16_t>(values.size())};
    from_f32(dtype, values.data(), values.size(), narrow.data());
    const auto narrowed = narrow.values();
    const bool f16 = dtype == DType::f16;
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const float expected = f16 ? f16_to_f32(halves[i]) : bf16_to_f32(halves[i]);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected)) << i;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(narrowed[i], f16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i])) << i;
    }
  }
}

TEST_P(Accumulate, SumOfEveryLength) {
  for (std::size_t count = 0; count < 200; ++count) {
    const auto a = gaussian(count, 1);
    const auto b = gaussian(count, 2);
    const auto c = gaussian(count, 3);
    const auto sums = reduce<float, float>(DType::f32, Reduction::sum, {a, b, c});
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(sums[i], (a[i] + b[i]) + c[i]);
  }
}

template <typename Sum, typename T>
void expect_first_equals_begin_and_accumulate(DType dtype, const std::vector<T>& own,
                                              const std::vector<T>& other) {
  for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::product}) {
    OddBytes<T> a(own), b(other);
    std::vector<Sum> expected(own.size()), got(own.size());
    accumulate_begin({dtype, a.data(), own.size()}, 1.0f, expected.data());
    accumulate(reduction, {dtype, b.data(), own.size()}, 1.0f, expected.data());
    accumulate_first(reduction, {dtype, a.data(), own.size()}, b.data(), got.data());
    EXPECT_EQ(got, expected) << dtype_name(dtype) << " " << reduction_name(reduction);
  }
}

TEST_P(Accumulate, FirstEqualsBeginAndAccumulate) {
  for (std::size_t count = 0; count < 200; ++count) {
    const auto a = gaussian(count, 1);
    const auto b = gaussian(count, 2);
    expect_first_equals_begin_and_accumulate<float>(DType::f32, a, b);
    std::vector<std::uint16_t> half_a, half_b;
    for (const float value : a) half_a.push_back(f32_to_f16(value));
    for (const float value : b) half_b.push_back(f32_to_f16(value));
    expect_first_equals_begin_and_accumulate<float>(DType::f16, half_a, half_b);
    const std::vector<std::int32_t> int_a(half_a.begin(), half_a.end());
    const std::vector<std::int32_t> int_b(half_b.begin(), half_b.end());
    expect_first_equals_begin_and_accumulate<std::int32_t>(DType::i32, int_a, int_b);
  }
}

TEST_P(Accumulate, PrescaleAndAverage) {
  constexpr std::size_t kCount = 3000;
  const auto a = gaussian(kCount, 1);
  const auto b = gaussian(kCount, 2);
  const auto c = gaussian(kCount, 3);
  const auto means = reduce<float, float>(DType::f32, Reduction::average, {a, b, c}, 0.3f);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(means[i], ((a[i] * 0.3f + b[i] * 0.3f) + c[i] * 0.3f) * (1.0f / 3.0f));
  }
  const std::vector<double> x = {1.0, -2.5, 1e300};
  const auto doubles = reduce<double, double>(DType::f64, Reduction::average, {x, x, x});
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(doubles[i], (x[i] + x[i] + x[i]) * (1.0 / 3.0));
}

TEST_P(Accumulate, HalfTypesRoundOnce) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto narrow = [&](float value) {
      return dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    };
    const auto wide = [&](std::uint16_t half) {
      return dtype == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
    };
    std::vector<std::vector<std::uint16_t>> ranks;
    for (std::uint64_t rank = 0; rank < 3; ++rank) {
      std::vector<std::uint16_t> halves;
      for (const float value : gaussian(2500, rank)) halves.push_back(narrow(value));
      ranks.push_back(halves);
    }
    const auto sums = reduce<float, std::uint16_t>(dtype, Reduction::sum, ranks);
    const auto means = reduce<float, std::uint16_t>(dtype, Reduction::average, ranks, 2.0f);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const float sum = (wide(ranks[0][i]) + wide(ranks[1][i])) + wide(ranks[2][i]);
      ASSERT_EQ(sums[i], narrow(sum));
      ASSERT_EQ(means[i], narrow(sum * 2.0f * (1.0f / 3.0f)));
    }
  }
}

TEST_P(Accumulate, MinAndMaxPropagateNan) {
  const std::vector<float> a = {1, kNan, 3, -0.0f, kInfinity};
  const std::vector<float> b = {2, 0, kNan, 0.0f, -kInfinity};
  const auto least = reduce<float, float>(DType::f32, Reduction::min, {a, b});
  const auto most = reduce<float, float>(DType::f32, Reduction::max, {a, b});
  EXPECT_EQ(least[0], 1.0f);
  EXPECT_EQ(most[0], 2.0f);
  for (const std::size_t i : {1u, 2u}) {
    EXPECT_TRUE(std::isnan(least[i]));
    EXPECT_TRUE(std::isnan(most[i]));
  }
  EXPECT_TRUE(std::signbit(least[3]));
  EXPECT_EQ(least[4], -kInfinity);
  EXPECT_EQ(most[4], kInfinity);
  const auto halves = reduce<float, std::uint16_t>(DType::f16, Reduction::max,
                                                   {{0x3c00, 0x7e00}, {0x4000, 0x3c00}});
  EXPECT_EQ(halves[0], 0x4000);
  EXPECT_EQ(halves[1], 0x7e00);
}

TEST_P(Accumulate, IntegersWrap) {
  using I32 = std::numeric_limits<std::int32_t>;
  using I64 = std::numeric_limits<std::int64_t>;
  EXPECT_EQ(
      (reduce<std::int32_t, std::int32_t>(DType::i32, Reduction::sum, {{I32::max(), 5}, {1, -7}})),
      (std::vector<std::int32_t>{I32::min(), -2}));
  EXPECT_EQ((reduce<std::int64_t, std::int64_t>(DType::i64, Reduction::product,
                                                {{I64::max(), 5}, {2, -7}})),
            (std::vector<std::int64_t>{-2, -35}));
  EXPECT_EQ(
      (reduce<std::int64_t, std::int64_t>(DType::i64, Reduction::min, {{I64::max(), 5}, {2, -7}})),
      (std::vector<std::int64_t>{2, -7}));
  EXPECT_EQ((reduce<std::uint8_t, std::uint8_t>(DType::u8, Reduction::sum, {{250, 1}, {10, 2}})),
            (std::vector<std::uint8_t>{4, 3}));
  EXPECT_EQ(
      (reduce<std::uint8_t, std::uint8_t>(DType::u8, Reduction::product, {{250, 3}, {10, 2}})),
      (std::vector<std::uint8_t>{196, 6}));
}

TEST_P(Accumulate, ProductOfFloats) {
  EXPECT_EQ((reduce<float, float>(DType::f32, Reduction::product, {{2, -3}, {4, 0.5f}, {1, 2}})),
            (std::vector<float>{8, -3}));
}

TEST_P(Accumulate, NanReachesTheResult) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const std::vector<float> sums = {kNan, kInfinity, 1e30f};
    OddBytes<std::uint16_t> out{std::vector<std::uint16_t>(3)};
    accumulate_finish(Reduction::average, sums.data(), 4, {dtype, out.data(), 3});
    std::vector<float> wide(3);
    to_f32(dtype, out.data(), 3, wide.data());
    EXPECT_TRUE(std::isnan(wide[0]));
    EXPECT_EQ(wide[1], kInfinity);
  }
}

// ---- Types that are not of the first seven ----

TEST_P(Accumulate, NarrowIntegersWrap) {
  EXPECT_EQ((reduce<std::int8_t, std::int8_t>(DType::i8, Reduction::sum, {{127, -128}, {1, -1}})),
            (std::vector<std::int8_t>{-128, 127}));
  EXPECT_EQ((reduce<std::int16_t, std::int16_t>(DType::i16, Reduction::product,
                                                {{-300, 181}, {300, 181}})),
            (std::vector<std::int16_t>{static_cast<std::int16_t>(-90000), 32761}));
  EXPECT_EQ((reduce<std::uint16_t, std::uint16_t>(DType::u16, Reduction::product,
                                                  {{65535, 2}, {65535, 3}})),
            (std::vector<std::uint16_t>{1, 6}));
  EXPECT_EQ(
      (reduce<std::uint32_t, std::uint32_t>(DType::u32, Reduction::sum, {{0xffffffffu}, {2u}})),
      (std::vector<std::uint32_t>{1}));
}

TEST_P(Accumulate, IntegersWithoutASignAreOrderedWithoutOne) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  EXPECT_EQ((reduce<std::uint64_t, std::uint64_t>(DType::u64, Reduction::max, {{kHuge}, {1}})),
            (std::vector<std::uint64_t>{kHuge}));
  EXPECT_EQ((reduce<std::int8_t, std::int8_t>(DType::i8, Reduction::min, {{-1}, {1}})),
            (std::vector<std::int8_t>{-1}));
}

TEST_P(Accumulate, BitByBitOfIntegers) {
  const std::vector<std::vector<std::uint16_t>> ranks = {{0xff00, 1}, {0x0ff0, 2}, {0x00ff, 4}};
  EXPECT_EQ((reduce<std::uint16_t, std::uint16_t>(DType::u16, Reduction::bit_and, ranks)),
            (std::vector<std::uint16_t>{0, 0}));
  EXPECT_EQ((reduce<std::uint16_t, std::uint16_t>(DType::u16, Reduction::bit_or, ranks)),
            (std::vector<std::uint16_t>{0xffff, 7}));
  EXPECT_EQ((reduce<std::uint16_t, std::uint16_t>(DType::u16, Reduction::bit_xor, ranks)),
            (std::vector<std::uint16_t>{0xff00 ^ 0x0ff0 ^ 0x00ff, 7}));
}

TEST_P(Accumulate, BooleansAreTruthValuesWhateverTheirBytes) {
  const std::vector<std::vector<std::uint8_t>> ranks = {{0, 2, 2, 255}, {0, 1, 0, 255}};
  EXPECT_EQ((reduce<std::uint8_t, std::uint8_t>(DType::boolean, Reduction::bit_and, ranks)),
            (std::vector<std::uint8_t>{0, 1, 0, 1}));
  EXPECT_EQ((reduce<std::uint8_t, std::uint8_t>(DType::boolean, Reduction::bit_or, ranks)),
            (std::vector<std::uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ((reduce<std::uint8_t, std::uint8_t>(DType::boolean, Reduction::bit_xor, ranks)),
            (std::vector<std::uint8_t>{0, 0, 1, 0}));
}

TEST_P(Accumulate, ComplexNumbers) {
  using C = std::complex<float>;
  using Z = std::complex<double>;
  EXPECT_EQ((reduce<C, C>(DType::c64, Reduction::sum, {{{1, 2}}, {{3, -5}}})),
            (std::vector<C>{{4, -3}}));
  EXPECT_EQ((reduce<Z, Z>(DType::c128, Reduction::product, {{{1, 2}}, {{3, -5}}})),
            (std::vector<Z>{{13, 1}}));
  EXPECT_EQ((reduce<C, C>(DType::c64, Reduction::average, {{{1, 2}}, {{3, -6}}}, 2.0f)),
            (std::vector<C>{{4, -4}}));
}

TEST(AccumulateTypes, EveryTypeThatIsReducedHasAnAccumulatorOfItsOwnSizeOrOfF32) {
  for (std::uint8_t number = 0; number <= static_cast<std::uint8_t>(kLastDType); ++number) {
    const auto dtype = static_cast<DType>(number);
    ASSERT_NE(dtype_bytes(dtype), 0u);
    EXPECT_NE(dtype_name(dtype), "unknown");
    EXPECT_GE(accumulator_bytes(dtype), dtype_bytes(dtype));
  }
  EXPECT_EQ(dtype_bytes(static_cast<DType>(17)), 0u);
}

}  // namespace accumulate_test
}  // namespace tern::codec
