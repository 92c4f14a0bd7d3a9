#include "codec/device/threelc_decode.cuh"

#include "tests/codec/device/kernels_under_test.h"

namespace tern::codec::device {
namespace threelc_decode_test {

EncodedBlock block_of(const char* recipe, std::span<const float> input) {
  std::vector<float> none;
  EncodeRequest request;
  request.fixed_scale_max = 3.0f;
  return encode_block(recipe_of(recipe), input, none, request);
}

constexpr const char* kRecipes[] = {"none(3lc)", "none(3lc:s=1.75,scale=64,zrun=off)",
                                    "none(3lc:s=1.9,scale=320)", "none(3lc:s=1,scale=tensor)"};

TEST(ThreelcDecode, TheElementsOfTheProcessorAtEveryLength) {
  std::uint64_t number = 0;
  for (const char* const recipe : kRecipes) {
    for (const std::size_t count :
         some_of({1, 4, 5, 6, 63, 64, 65, 319, 320, 321, 2049, 4097, 10240, 10241, 20603})) {
      const auto block = block_of(recipe, gaussian(count, count));
      DecodeLaunch launch({block});
      const LaunchOptions options = options_of(++number);
      SCOPED_TRACE(std::string(recipe) + " " + std::to_string(count) + ", " +
                   schedule_text(options));
      const Decoded made = launch.run(kThreelcDecode, std::vector<float>(count), options);
      EXPECT_EQ(made.report.finding, "");
      EXPECT_EQ(made.status, DecodeStatus::ok);
      EXPECT_EQ(bits_of(made.out), bits_of(decode_block(block)));
    }
  }
}

// Zeros of either sign keep their bits where a digit is zero.
TEST(ThreelcDecode, AddsManyBlocksInTheirOrder) {
  constexpr std::size_t kCount = 5003;
  std::vector<EncodedBlock> blocks;
  for (std::uint64_t i = 0; i < 6; ++i) {
    blocks.push_back(block_of(kRecipes[i % 4], gaussian(kCount, i, 1.0f + static_cast<float>(i))));
  }
  blocks.push_back(block_of("none(3lc)", std::vector<float>(kCount, 0.0f)));
  auto sums = gaussian(kCount, 50);
  for (std::size_t i = 0; i < kCount; i += 3) sums[i] = i % 2 == 0 ? -0.0f : 0.0f;
  auto expected = sums;
  for (const EncodedBlock& block : blocks) {
    ASSERT_EQ(decode_add({block.header, block.payload}, expected, workspace()), DecodeStatus::ok);
  }
  DecodeLaunch launch(blocks);
  for (const std::uint32_t at_once : {1u, 3u, 16u}) {
    launch.at_once = at_once;
    for (const Schedule& schedule : schedules(at_once)) {
      LaunchOptions options;
      options.schedule = schedule;
      SCOPED_TRACE(schedule_text(options));
      const Decoded made = launch.run(kThreelcAdd, sums, options);
      EXPECT_EQ(made.report.finding, "");
      EXPECT_EQ(made.status, DecodeStatus::ok);
      EXPECT_EQ(bits_of(made.out), bits_of(expected));
    }
  }
}

// A scale of zero beside others: a digit decodes to a zero of its sign.
TEST(ThreelcDecode, ForeignPayloadsAreReadAsTheProcessorReadsThem) {
  std::mt19937_64 engine(5);
  for (const char* const recipe : kRecipes) {
    const auto good = block_of(recipe, gaussian(3000, 9));
    for (int round = 0; round < tests::rounds(40); ++round) {
      auto block = good;
      for (int i = 0; i < 3; ++i) {
        block.payload[engine() % block.payload.size()] = static_cast<std::byte>(engine());
      }
      if (round % 4 == 0) std::memset(block.payload.data(), 0, 4);
      std::vector<float> expected(3000);
      const auto status = decode({block.header, block.payload}, expected, workspace());
      DecodeLaunch launch({block});
      const Decoded made = launch.run(kThreelcDecode, expected, options_of(engine()));
      EXPECT_EQ(made.report.finding, "");
      EXPECT_EQ(decode_status_name(made.status), decode_status_name(status));
      if (status == DecodeStatus::ok) {
        EXPECT_EQ(bits_of(made.out), bits_of(expected));
      }
    }
  }
}

// Shorter by some bytes, with a header that says so and is possible.
TEST(ThreelcDecode, CutPayloadsAreRefused) {
  const auto good = block_of("none(3lc)", gaussian(3000, 9));
  for (const std::size_t cut : {1u, 2u, 3u, 17u, 100u}) {
    auto block = good;
    block.payload.erase(block.payload.end() - static_cast<std::ptrdiff_t>(cut),
                        block.payload.end());
    block.header.payload_bytes -= static_cast<std::uint32_t>(cut);
    DecodeLaunch launch({block});
    const Decoded made = launch.run(kThreelcAdd, std::vector<float>(3000, 1.0f), options_of(cut));
    EXPECT_EQ(made.report.finding, "");
    EXPECT_EQ(decode_status_name(made.status), "stream_too_short");
    EXPECT_EQ(made.out, std::vector<float>(3000, 1.0f));
  }
}

TEST(ThreelcDecode, MovesTheBytesOfTheDesign) {
  constexpr std::size_t kCount = 32768;
  for (const std::size_t blocks : {0u, 1u, 4u, 8u}) {
    std::vector<EncodedBlock> all;
    for (std::uint64_t i = 0; i < std::max<std::size_t>(blocks, 1); ++i) {
      all.push_back(block_of("none(3lc:zrun=off)", gaussian(kCount, i)));
    }
    DecodeLaunch launch(all);
    launch.at_once = 8;
    LaunchOptions options = options_of(1);
    options.meter_traffic = true;
    const std::vector<float> sums(kCount, 1.0f);
    const Decoded made = blocks == 0 ? launch.run(kThreelcDecode, sums, options)
                                     : launch.run(kThreelcAdd, sums, options);
    EXPECT_EQ(made.report.finding, "");
    const double each =
        static_cast<double>(made.report.traffic.global_bytes()) / static_cast<double>(kCount);
    const double design = blocks == 0 ? 4.2 : 8.0 + 0.2 * static_cast<double>(blocks);
    std::printf(
        "[ counted  ] %zu blocks: %.3f bytes an element, %.3f passes a shared access, %zu "
        "shared bytes\n",
        blocks, each, made.report.traffic.passes_per_access(), made.report.shared_bytes);
    EXPECT_NEAR(each, design, 0.05 * design);
    EXPECT_LE(made.report.shared_bytes, 163u * 1024u);
  }
}

TEST(ThreelcDecode, EveryRemovedBarrierIsFound) {
  // A stream longer than what all threads expand at a time.
  constexpr std::size_t kCount = 60000;
  const std::vector<float> zeros(kCount, 0.0f);
  const std::vector<EncodedBlock> blocks = {
      block_of("none(3lc)", zeros), block_of("none(3lc:scale=64)", gaussian(kCount, 1)),
      block_of("none(3lc:zrun=off)", gaussian(kCount, 2)), block_of("none(3lc)", zeros)};
  DecodeLaunch launch(blocks);
  launch.at_once = 2;
  const std::vector<float> sums(kCount, 1.0f);
  const Decoded whole = launch.run(kThreelcAdd, sums, options_of(1));
  EXPECT_EQ(whole.report.finding, "");
  ASSERT_GE(whole.report.barriers.size(), 5u);
  for (const emulation::Site& site : whole.report.barriers) {
    for (const Schedule& schedule : schedules(7)) {
      LaunchOptions options;
      options.schedule = schedule;
      options.without_barrier = site;
      EXPECT_NE(launch.run(kThreelcAdd, sums, options).report.finding, "")
          << site.file << ':' << site.line << ' ' << schedule_text(options);
    }
  }
}

}  // namespace threelc_decode_test
}  // namespace tern::codec::device
