#include "codec/device/topk_encode.cuh"

#include <limits>

#include "codec/sparsifier/implementation.h"
#include "tests/codec/device/kernels_under_test.h"

namespace tern::codec::device {
namespace topk_encode_test {

constexpr const char* kRecipes[] = {"ef(topk:p=0.01)",        "none(topk:p=0.01)",
                                    "ef(topk:p=0.2)",         "ef(topk:p=0.5)",
                                    "ef(topk:k=50,exact=on)", "ef(topk:p=0.3,exact=on)"};

class TopkEncode : public testing::TestWithParam<const char*> {
 protected:
  DeviceEncoded encode_with(EncodeRequest request, const LaunchOptions& options) const {
    const Wanted wanted(recipe_, request.input.size());
    return encode_on_device(wanted.launch(), request, encode_bound(recipe_, request.input.size()),
                            options);
  }

  LaunchReport expect_same_block(std::span<const float> input, std::vector<float> residual,
                                 EncodeRequest request, const LaunchOptions& options) const {
    request.input = input;
    request.state = residual.empty() ? nullptr : residual.data();
    const Wanted wanted(recipe_, input.size());
    return expect_same(recipe_, wanted.launch(), request, options);
  }

  std::vector<float> residual_for(std::size_t count) const {
    return needs_residual(recipe_) ? gaussian(count, 99, 0.3f) : std::vector<float>{};
  }
  std::vector<float> no_residual(std::size_t count) const {
    return std::vector<float>(needs_residual(recipe_) ? count : 0, 0.0f);
  }

  Recipe recipe_ = recipe_of(GetParam());

 private:
  // The number of elements to keep, in the device's memory.
  class Wanted {
   public:
    Wanted(const Recipe& recipe, std::size_t elements)
        : exact_(recipe.sparsifier.exact),
          count_(static_cast<std::uint32_t>(sparsifier::count_of(recipe.sparsifier, elements))),
          array_(
              std::make_shared<Array<std::uint32_t>>(std::span<const std::uint32_t>(&count_, 1))) {}
    EncodeLaunch launch() const {
      return [launch = launch_of(kTopkEncode, TopkStage{array_->data(), exact_}), array = array_](
                 const Array<EncodeChunk>& chunks, const LaunchOptions& options) {
        return launch(chunks, options);
      };
    }

   private:
    bool exact_;
    std::uint32_t count_;
    std::shared_ptr<Array<std::uint32_t>> array_;
  };
};

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, TopkEncode, testing::ValuesIn(kRecipes), name_of);

TEST_P(TopkEncode, TheBytesOfTheProcessorAtEveryLength) {
  std::uint64_t number = 0;
  for (const std::size_t count :
       some_of({0, 1, 2, 5, 63, 64, 65, 319, 2048, 2049, 4096, 4097, 10241})) {
    const LaunchOptions options = options_of(++number);
    SCOPED_TRACE(std::to_string(count) + " elements, " + schedule_text(options));
    EncodeRequest request;
    request.stream_step = number;
    expect_same_block(gaussian(count, count), residual_for(count), request, options);
  }
}

TEST_P(TopkEncode, TheSameBytesOnEverySchedule) {
  const auto input = gaussian(5003, 3);
  for (const Schedule& schedule : schedules(4)) {
    LaunchOptions options;
    options.schedule = schedule;
    SCOPED_TRACE(schedule_text(options));
    expect_same_block(input, residual_for(input.size()), {}, options);
  }
}

// Equal magnitudes, few that are not zero, one that a sample misses, and values in clusters.
TEST_P(TopkEncode, InputsThatMoveTheThreshold) {
  constexpr std::size_t kCount = 9000;
  std::vector<float> input(kCount, 0.0f);
  expect_same_block(input, no_residual(kCount), {}, options_of(1));
  input[8999] = 1.0f;
  expect_same_block(input, no_residual(kCount), {}, options_of(2));
  for (std::size_t i = 0; i < kCount; ++i) input[i] = i % 2 == 0 ? 0.5f : -0.5f;
  expect_same_block(input, no_residual(kCount), {}, options_of(3));
  for (std::size_t i = 0; i < kCount; ++i) input[i] = i < 300 ? static_cast<float>(i + 1) : 1e-3f;
  expect_same_block(input, no_residual(kCount), {}, options_of(4));
  for (std::size_t i = 0; i < kCount; ++i) input[i] = 1.0f / static_cast<float>(i % 100 + 1);
  expect_same_block(input, no_residual(kCount), {}, options_of(5));
  for (std::size_t i = 0; i < kCount; ++i) input[i] = i < kCount - 50 ? 1.0f : 100.0f;
  expect_same_block(input, no_residual(kCount), {}, options_of(6));
}

TEST_P(TopkEncode, NonfiniteInputChangesNothing) {
  for (const float poison :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto input = gaussian(5000, 4);
    input[4999] = poison;
    expect_same_block(input, residual_for(input.size()), {}, options_of(1));
  }
}

TEST_P(TopkEncode, WhatIsDelivered) {
  for (const DType delivered : {DType::f16, DType::bf16}) {
    for (const float sigma : {1.0f, 30000.0f}) {
      EncodeRequest request;
      request.delivered = delivered;
      expect_same_block(gaussian(3001, 8, sigma), residual_for(3001), request, options_of(7));
    }
  }
}

TEST_P(TopkEncode, MovesTheBytesOfTheDesign) {
  if (GetParam() != std::string("ef(topk:p=0.01)")) return;
  constexpr std::size_t kCount = 32768;
  LaunchOptions options = options_of(1);
  options.meter_traffic = true;
  const LaunchReport report =
      expect_same_block(gaussian(kCount, 1), residual_for(kCount), {}, options);
  const double each =
      static_cast<double>(report.traffic.global_bytes()) / static_cast<double>(kCount);
  std::printf("[ counted  ] %.3f bytes an element, %.3f passes a shared access, %zu shared bytes\n",
              each, report.traffic.passes_per_access(), report.shared_bytes);
  EXPECT_NEAR(each, 12.1, 0.05 * 12.1);
  EXPECT_LE(report.shared_bytes, 163u * 1024u);
}

TEST_P(TopkEncode, EveryRemovedBarrierIsFound) {
  // One with a sample, and one that looks at all values.
  const std::string recipe = GetParam();
  if (recipe != "ef(topk:p=0.01)" && recipe != "ef(topk:p=0.3,exact=on)") return;
  constexpr std::size_t kCount = 6000;
  const auto input = gaussian(kCount, 5);
  const LaunchReport whole = expect_same_block(input, residual_for(kCount), {}, options_of(1));
  ASSERT_GE(whole.barriers.size(), 5u);
  for (const emulation::Site& site : whole.barriers) {
    for (const Schedule& schedule : schedules(7)) {
      LaunchOptions options;
      options.schedule = schedule;
      options.without_barrier = site;
      auto residual = residual_for(kCount);
      EncodeRequest request;
      request.input = input;
      request.state = residual.empty() ? nullptr : residual.data();
      EXPECT_NE(encode_with(request, options).report.finding, "")
          << site.file << ':' << site.line << ' ' << schedule_text(options);
    }
  }
}

}  // namespace topk_encode_test
}  // namespace tern::codec::device
