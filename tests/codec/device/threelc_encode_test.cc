#include "codec/device/threelc_encode.cuh"

#include <limits>

#include "tests/codec/device/kernels_under_test.h"

namespace tern::codec::device {
namespace threelc_encode_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kOnChipElements = 32768;  // a chunk of 128 KiB

struct Case {
  const char* recipe;
  bool on_chip;
};

constexpr const char* kRecipes[] = {"none(3lc)", "ef(3lc:s=1,scale=4096)",
                                    "ef(3lc:s=1.75,scale=64,zrun=off)", "ef(3lc:s=1.9,scale=320)",
                                    "ef(3lc:s=1,scale=tensor)"};

class ThreelcEncode : public testing::TestWithParam<Case> {
 protected:
  EncodeLaunch launch() const {
    const ThreelcStage stage{recipe_.scale_elements, recipe_.s, recipe_.zero_run};
    return launch_of(GetParam().on_chip ? kThreelcEncode : kThreelcEncodeTwice, stage);
  }

  LaunchReport expect_same_block(std::span<const float> input, std::vector<float> residual,
                                 EncodeRequest request, const LaunchOptions& options) const {
    request.input = input;
    request.state = residual.empty() ? nullptr : residual.data();
    if (request.fixed_scale_max == 0.0f) {
      request.fixed_scale_max = scan_max(input, request.state, request.state_scale).max;
    }
    return expect_same(recipe_, launch(), request, options);
  }

  std::vector<float> residual_for(std::size_t count, std::uint64_t seed = 99) const {
    return needs_residual(recipe_) ? gaussian(count, seed, 0.3f) : std::vector<float>{};
  }

  Recipe recipe_ = recipe_of(GetParam().recipe);
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* const recipe : kRecipes) {
    all.push_back({recipe, true});
    all.push_back({recipe, false});
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.recipe;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name + (info.param.on_chip ? "_onchip" : "_twice");
}

INSTANTIATE_TEST_SUITE_P(All, ThreelcEncode, testing::ValuesIn(cases()), name_of);

TEST_P(ThreelcEncode, TheBytesOfTheProcessorAtEveryLength) {
  std::uint64_t number = 0;
  for (const std::size_t count : some_of({0, 1, 4, 5, 6, 63, 64, 65, 319, 320, 321, 2047, 2048,
                                          2049, 4096, 4097, 10240, 10241, 20603})) {
    const LaunchOptions options = options_of(++number);
    SCOPED_TRACE(std::to_string(count) + " elements, " + schedule_text(options));
    EncodeRequest request;
    request.stream_step = number;
    expect_same_block(gaussian(count, count), residual_for(count), request, options);
  }
}

TEST_P(ThreelcEncode, TheSameBytesOnEverySchedule) {
  const auto input = gaussian(7777, 3);
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    for (const Schedule& schedule : schedules(seed)) {
      LaunchOptions options;
      options.schedule = schedule;
      SCOPED_TRACE(schedule_text(options));
      expect_same_block(input, residual_for(input.size()), {}, options);
    }
  }
}

TEST_P(ThreelcEncode, WhatIsDeliveredAndStateScale) {
  for (const DType delivered : {DType::f32, DType::f16, DType::bf16}) {
    EncodeRequest request;
    request.delivered = delivered;
    request.state_scale = 0.5f;
    expect_same_block(gaussian(3001, 8), residual_for(3001), request, options_of(7));
    request.fixed_scale_max = 60000.0f;
    expect_same_block(gaussian(3001, 8, 30000.0f), residual_for(3001), request, options_of(7));
  }
}

TEST_P(ThreelcEncode, NonfiniteInputChangesNothing) {
  for (const float poison : {kNan, kInfinity, -kInfinity}) {
    for (const std::size_t at : {0u, 63u, 4095u, 4999u}) {
      auto input = gaussian(5000, 4);
      input[at] = poison;
      EncodeRequest request;
      request.fixed_scale_max = 5.0f;
      expect_same_block(input, residual_for(input.size()), request, options_of(at));
    }
  }
}

TEST_P(ThreelcEncode, SumThatOverflowsTravelsRaw) {
  std::vector<float> input(1000, 1.0f);
  auto residual = residual_for(1000);
  input[500] = 3e38f;
  if (!residual.empty()) residual[500] = 3e38f;
  EncodeRequest request;
  request.fixed_scale_max = 5.0f;
  expect_same_block(input, residual, request, options_of(1));
}

TEST_P(ThreelcEncode, SpecialValues) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr float kLarge = std::numeric_limits<float>::max();
  for (const float value : {0.0f, -0.0f, kTiny, -3 * kTiny, 0x1p-126f, 1.0f, -0.75f, kLarge}) {
    for (const bool mixed : {false, true}) {
      for (const std::size_t count : some_of({1, 5, 64, 4097})) {
        std::vector<float> input(count, value);
        for (std::size_t i = 0; mixed && i < count; i += 3) input[i] = i % 2 == 0 ? -0.0f : -value;
        SCOPED_TRACE(std::to_string(value) + " " + std::to_string(count));
        std::vector<float> residual(needs_residual(recipe_) ? count : 0, 0.0f);
        expect_same_block(input, residual, {}, options_of(count));
      }
    }
  }
}

// Some groups all zero, and a residual that cancels the input.
TEST_P(ThreelcEncode, ZeroChunksAndZeroGroups) {
  std::vector<float> input(9000, 0.0f);
  expect_same_block(input, residual_for(input.size()), {}, options_of(1));
  for (std::size_t i = 4096; i < 8192; ++i) input[i] = static_cast<float>(i % 7) - 3.0f;
  expect_same_block(input, std::vector<float>(residual_for(9000).size(), 0.0f), {}, options_of(2));
  auto canceling = residual_for(input.size());
  for (std::size_t i = 0; i < canceling.size(); ++i) canceling[i] = -input[i];
  expect_same_block(input, canceling, {}, options_of(3));
}

// Values at, just below and just above half of the scale.
TEST_P(ThreelcEncode, TiesGoToZero) {
  std::vector<float> input(1500, 0.0f);
  const float half = 0.5f * recipe_.s;
  for (std::size_t i = 0; i < input.size(); ++i) {
    const float near[] = {half, std::nextafter(half, 0.0f), std::nextafter(half, 2.0f), 1.0f};
    input[i] = i % 2 == 0 ? near[i / 2 % 4] : -near[i / 2 % 4];
  }
  expect_same_block(input, std::vector<float>(residual_for(1500).size(), 0.0f), {}, options_of(1));
}

// Runs of zero columns of every length around the longest code and around a thread's piece.
TEST_P(ThreelcEncode, RunsOfZeros) {
  std::vector<float> input(20000, 0.0f);
  std::size_t column = 0;
  for (std::size_t run = 0; run < 45; ++run) {
    column += run;
    const std::size_t at = column / 64 * 320 + column % 64;
    if (at >= input.size()) break;
    input[at] = 1.0f;
    ++column;
  }
  expect_same_block(input, std::vector<float>(residual_for(20000).size(), 0.0f), {}, options_of(2));
}

// The chunks of a tensor, the last one shorter, beside each other in the device's memory.
TEST(ThreelcEncodeLaunch, ManyChunksAtOnce) {
  constexpr std::size_t kChunk = 2560;
  constexpr std::size_t kCount = 3 * kChunk + 77;
  constexpr std::size_t kRoom = 2048;
  const Recipe recipe = recipe_of("ef(3lc)");
  const ThreelcStage stage{recipe.scale_elements, recipe.s, recipe.zero_run};
  const auto values = gaussian(kCount, 1);
  const auto before = gaussian(kCount, 2, 0.3f);
  for (const Schedule& schedule : schedules(9)) {
    const Array<float> input{std::span<const float>(values)};
    const Array<float> residual{std::span<const float>(before)};
    const Array<std::byte> blocks(4 * kRoom);
    const Array<EncodeOutcome> outcomes(4);
    std::vector<EncodeChunk> chunks;
    for (std::size_t i = 0; i < 4; ++i) {
      chunks.push_back({input.data() + i * kChunk, residual.data() + i * kChunk,
                        blocks.data() + i * kRoom, outcomes.data() + i, i,
                        static_cast<std::uint32_t>(std::min(kChunk, kCount - i * kChunk)), 1.0f,
                        0.0f, DType::f32});
    }
    const Array<EncodeChunk> array{std::span<const EncodeChunk>(chunks)};
    LaunchOptions options;
    options.schedule = schedule;
    const auto report = kThreelcEncode.launch(stage, array, options);
    ASSERT_EQ(report.finding, "");
    const auto bytes = blocks.values();
    const auto residuals = residual.values();
    for (std::size_t i = 0; i < 4; ++i) {
      std::vector<float> left(
          before.begin() + static_cast<std::ptrdiff_t>(i * kChunk),
          before.begin() + static_cast<std::ptrdiff_t>(i * kChunk) + chunks[i].elements);
      EncodeRequest request;
      request.stream_step = i;
      const auto expected =
          encode_block(recipe, {values.data() + i * kChunk, chunks[i].elements}, left, request);
      const std::byte* const block = bytes.data() + i * kRoom;
      EXPECT_EQ(std::memcmp(block, &expected.header, sizeof(expected.header)), 0);
      EXPECT_EQ(std::memcmp(block + sizeof(expected.header), expected.payload.data(),
                            expected.payload.size()),
                0);
      EXPECT_EQ(bits_of({residuals.data() + i * kChunk, left.size()}), bits_of(left));
    }
  }
}

// A chunk of its whole size: the shared memory that a device has, the sectors that the design
// allows, and no conflicts where rows are read.
TEST_P(ThreelcEncode, MovesTheBytesOfTheDesign) {
  if (!needs_residual(recipe_) || recipe_.scale_elements != 4096) return;
  const std::size_t count = GetParam().on_chip ? kOnChipElements : 2 * kOnChipElements;
  LaunchOptions options = options_of(1);
  options.meter_traffic = true;
  const LaunchReport report =
      expect_same_block(gaussian(count, 1), residual_for(count), {}, options);
  const double each =
      static_cast<double>(report.traffic.global_bytes()) / static_cast<double>(count);
  const double design = GetParam().on_chip ? 12.2 : 20.2;
  RecordProperty("bytes_per_element", std::to_string(each));
  std::printf("[ counted  ] %.3f bytes an element, %.3f passes a shared access, %zu shared bytes\n",
              each, report.traffic.passes_per_access(), report.shared_bytes);
  EXPECT_NEAR(each, design, 0.05 * design);
  EXPECT_GT(10 * report.traffic.global_bytes_wide, 9 * report.traffic.global_bytes_asked);
  EXPECT_LT(report.traffic.passes_per_access(), 1.5);
  EXPECT_LE(report.shared_bytes, 163u * 1024u);  // sm_80; sm_90 and sm_100 have 227
}

// Each barrier is there for a reason: without it the emulation reports a race, or a wait without
// end, whatever the schedule.
TEST_P(ThreelcEncode, EveryRemovedBarrierIsFound) {
  const std::size_t count = 24101;  // whole tiles, a part of one, and a tail
  const auto input = gaussian(count, 5);
  const LaunchReport whole = expect_same_block(input, residual_for(count), {}, options_of(1));
  ASSERT_GE(whole.barriers.size(), 3u);
  for (const emulation::Site& site : whole.barriers) {
    for (const Schedule& schedule : schedules(7)) {
      LaunchOptions options;
      options.schedule = schedule;
      options.without_barrier = site;
      auto residual = residual_for(count);
      EncodeRequest request;
      request.input = input;
      request.state = residual.empty() ? nullptr : residual.data();
      request.fixed_scale_max = 4.0f;
      const auto made = encode_on_device(launch(), request, encode_bound(recipe_, count), options);
      EXPECT_NE(made.report.finding, "")
          << site.file << ':' << site.line << ' ' << schedule_text(options);
    }
  }
}

}  // namespace threelc_encode_test
}  // namespace tern::codec::device
