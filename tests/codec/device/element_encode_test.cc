#include "codec/device/element_encode.cuh"

#include <limits>

#include "tests/codec/device/kernels_under_test.h"

namespace tern::codec::device {
namespace element_encode_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A recipe, the kernel for it, and the design's bytes of an element.
struct Case {
  const char* recipe;
  StagedKernel<ElementStage, EncodeChunk> kernel;
  double design;
};

const Case kCases[] = {
    {"ef(int:bits=8)", kInt8Encode, 13.0},
    {"none(int:bits=8,block=64)", kInt8Encode, 5.0},
    {"ef(int:bits=4)", kInt4Encode, 12.5},
    {"ef(int:bits=4,block=64)", kInt4Encode, 12.5},
    {"ef(fp8:format=e4m3)", kFp8E4M3Encode, 13.0},
    {"none(fp8:format=e4m3)", kFp8E4M3Encode, 5.0},
    {"ef(fp8:format=e5m2,block=64)", kFp8E5M2Encode, 13.0},
    {"none(fp8:format=e5m2)", kFp8E5M2Encode, 5.0},
    {"ef(bf16)", kBf16Encode, 14.0},
    {"none(bf16)", kBf16Encode, 6.0},
};

class ElementEncode : public testing::TestWithParam<Case> {
 protected:
  EncodeLaunch launch() const {
    return launch_of(GetParam().kernel, ElementStage{recipe_.quantizer.block});
  }

  LaunchReport expect_same_block(std::span<const float> input, std::vector<float> residual,
                                 EncodeRequest request, const LaunchOptions& options) const {
    request.input = input;
    request.state = residual.empty() ? nullptr : residual.data();
    return expect_same(recipe_, launch(), request, options);
  }

  std::vector<float> residual_for(std::size_t count) const {
    return needs_residual(recipe_) ? gaussian(count, 99, 0.3f) : std::vector<float>{};
  }
  std::vector<float> no_residual(std::size_t count) const {
    return std::vector<float>(needs_residual(recipe_) ? count : 0, 0.0f);
  }

  Recipe recipe_ = recipe_of(GetParam().recipe);
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.recipe;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, ElementEncode, testing::ValuesIn(kCases), name_of);

TEST_P(ElementEncode, TheBytesOfTheProcessorAtEveryLength) {
  std::uint64_t number = 0;
  for (const std::size_t count : some_of({0,  1,  2,   3,   4,    5,    31,   32,   33,   63,
                                          64, 65, 255, 257, 2047, 2048, 2049, 4096, 4097, 10241})) {
    const LaunchOptions options = options_of(++number);
    SCOPED_TRACE(std::to_string(count) + " elements, " + schedule_text(options));
    EncodeRequest request;
    request.stream_step = number;
    request.state_scale = number % 2 == 0 ? 1.0f : 0.5f;
    expect_same_block(gaussian(count, count), residual_for(count), request, options);
  }
}

TEST_P(ElementEncode, TheSameBytesOnEverySchedule) {
  const auto input = gaussian(5003, 3);
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    for (const Schedule& schedule : schedules(seed)) {
      LaunchOptions options;
      options.schedule = schedule;
      SCOPED_TRACE(schedule_text(options));
      expect_same_block(input, residual_for(input.size()), {}, options);
    }
  }
}

TEST_P(ElementEncode, WhatIsDelivered) {
  for (const DType delivered : {DType::f32, DType::f16, DType::bf16}) {
    for (const float sigma : {1.0f, 1e-6f, 15000.0f, 1e30f}) {
      SCOPED_TRACE(std::string(dtype_name(delivered)) + " " + std::to_string(sigma));
      EncodeRequest request;
      request.delivered = delivered;
      expect_same_block(gaussian(3001, 8, sigma), residual_for(3001), request, options_of(7));
    }
  }
}

TEST_P(ElementEncode, NonfiniteInputChangesNothing) {
  for (const float poison : {kNan, kInfinity, -kInfinity}) {
    for (const std::size_t at : {0u, 63u, 4095u, 4999u}) {
      auto input = gaussian(5000, 4);
      input[at] = poison;
      expect_same_block(input, residual_for(input.size()), {}, options_of(at));
    }
  }
}

TEST_P(ElementEncode, SpecialValues) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr float kLarge = std::numeric_limits<float>::max();
  for (const float value : {0.0f, -0.0f, kTiny, -3 * kTiny, 0x1p-126f, 1.0f, -0.75f, kLarge}) {
    for (const bool mixed : {false, true}) {
      for (const std::size_t count : some_of({1, 5, 64, 4097})) {
        std::vector<float> input(count, value);
        for (std::size_t i = 0; mixed && i < count; i += 3) input[i] = i % 2 == 0 ? -0.0f : -value;
        SCOPED_TRACE(std::to_string(value) + " " + std::to_string(count));
        expect_same_block(input, no_residual(count), {}, options_of(count));
      }
    }
  }
}

// Every exponent there is, and values between two codes.
TEST_P(ElementEncode, ScaleBorders) {
  std::vector<float> input(8192);
  for (std::size_t i = 0; i < input.size(); ++i) {
    const int exponent = static_cast<int>(i / 32) - 128;
    const float mantissa = 1.0f + static_cast<float>(i % 32) / 32.0f;
    input[i] = std::ldexp(i % 2 == 0 ? mantissa : -mantissa, std::min(exponent, 126));
  }
  expect_same_block(input, no_residual(input.size()), {}, options_of(3));
}

TEST_P(ElementEncode, MovesTheBytesOfTheDesign) {
  constexpr std::size_t kCount = 32768;  // a chunk of 128 KiB
  LaunchOptions options = options_of(1);
  options.meter_traffic = true;
  const LaunchReport report =
      expect_same_block(gaussian(kCount, 1), residual_for(kCount), {}, options);
  const double each =
      static_cast<double>(report.traffic.global_bytes()) / static_cast<double>(kCount);
  std::printf("[ counted  ] %.3f bytes an element, %.3f passes a shared access, %zu shared bytes\n",
              each, report.traffic.passes_per_access(), report.shared_bytes);
  EXPECT_NEAR(each, GetParam().design, 0.05 * GetParam().design);
  EXPECT_LT(report.traffic.passes_per_access(), 1.5);
  EXPECT_LE(report.shared_bytes, 163u * 1024u);
}

TEST_P(ElementEncode, EveryRemovedBarrierIsFound) {
  constexpr std::size_t kCount = 12000;
  const auto input = gaussian(kCount, 5);
  const LaunchReport whole = expect_same_block(input, residual_for(kCount), {}, options_of(1));
  ASSERT_GE(whole.barriers.size(), 4u);
  for (const emulation::Site& site : whole.barriers) {
    for (const Schedule& schedule : schedules(7)) {
      LaunchOptions options;
      options.schedule = schedule;
      options.without_barrier = site;
      auto residual = residual_for(kCount);
      EncodeRequest request;
      request.input = input;
      request.state = residual.empty() ? nullptr : residual.data();
      const auto made = encode_on_device(launch(), request, encode_bound(recipe_, kCount), options);
      EXPECT_NE(made.report.finding, "")
          << site.file << ':' << site.line << ' ' << schedule_text(options);
    }
  }
}

}  // namespace element_encode_test
}  // namespace tern::codec::device
