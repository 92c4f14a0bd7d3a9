#include "codec/device/element_decode.cuh"

#include "tests/codec/device/kernels_under_test.h"

namespace tern::codec::device {
namespace element_decode_test {

// Recipes, the kernels for them, and the design's bytes of an element.
struct Case {
  const char* recipe;
  DecodeKernel decode;
  DecodeKernel add;
  double block_bytes;
};

const Case kCases[] = {
    {"none(int:bits=8)", kInt8Decode, kInt8Add, 1.0},
    {"none(int:bits=8,block=64)", kInt8Decode, kInt8Add, 1.0},
    {"none(int:bits=4)", kInt4Decode, kInt4Add, 0.5},
    {"none(fp8:format=e4m3)", kFp8E4M3Decode, kFp8E4M3Add, 1.0},
    {"none(fp8:format=e5m2,block=64)", kFp8E5M2Decode, kFp8E5M2Add, 1.0},
    {"none(bf16)", kBf16Decode, kBf16Add, 2.0},
};

class ElementDecode : public testing::TestWithParam<Case> {
 protected:
  EncodedBlock block_of(std::span<const float> input) const {
    std::vector<float> none;
    return encode_block(recipe_of(GetParam().recipe), input, none);
  }
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.recipe;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, ElementDecode, testing::ValuesIn(kCases), name_of);

TEST_P(ElementDecode, TheElementsOfTheProcessorAtEveryLength) {
  std::uint64_t number = 0;
  for (const std::size_t count :
       some_of({1, 2, 3, 4, 5, 31, 32, 33, 255, 257, 2047, 2048, 2049, 10241})) {
    const auto block = block_of(gaussian(count, count));
    DecodeLaunch launch({block});
    const LaunchOptions options = options_of(++number);
    SCOPED_TRACE(std::to_string(count) + " elements, " + schedule_text(options));
    const Decoded made = launch.run(GetParam().decode, std::vector<float>(count), options);
    EXPECT_EQ(made.report.finding, "");
    EXPECT_EQ(made.status, DecodeStatus::ok);
    EXPECT_EQ(bits_of(made.out), bits_of(decode_block(block)));
  }
}

TEST_P(ElementDecode, AddsManyBlocksInTheirOrder) {
  constexpr std::size_t kCount = 3003;
  std::vector<EncodedBlock> blocks;
  for (std::uint64_t i = 0; i < 5; ++i) blocks.push_back(block_of(gaussian(kCount, i)));
  const auto sums = gaussian(kCount, 50);
  auto expected = sums;
  for (const EncodedBlock& block : blocks) {
    ASSERT_EQ(decode_add({block.header, block.payload}, expected, workspace()), DecodeStatus::ok);
  }
  DecodeLaunch launch(blocks);
  for (const std::uint32_t at_once : {1u, 2u, 16u}) {
    launch.at_once = at_once;
    for (const Schedule& schedule : schedules(at_once)) {
      LaunchOptions options;
      options.schedule = schedule;
      SCOPED_TRACE(schedule_text(options));
      const Decoded made = launch.run(GetParam().add, sums, options);
      EXPECT_EQ(made.report.finding, "");
      EXPECT_EQ(made.status, DecodeStatus::ok);
      EXPECT_EQ(bits_of(made.out), bits_of(expected));
    }
  }
}

TEST_P(ElementDecode, ForeignPayloadsAreReadAsTheProcessorReadsThem) {
  std::mt19937_64 engine(5);
  const auto good = block_of(gaussian(1000, 9));
  for (int round = 0; round < tests::rounds(40); ++round) {
    auto block = good;
    for (int i = 0; i < 3; ++i) {
      block.payload[engine() % block.payload.size()] = static_cast<std::byte>(engine());
    }
    std::vector<float> expected(1000);
    const auto status = decode({block.header, block.payload}, expected, workspace());
    DecodeLaunch launch({block});
    const Decoded made = launch.run(GetParam().decode, expected, options_of(engine()));
    EXPECT_EQ(made.report.finding, "");
    EXPECT_EQ(decode_status_name(made.status), decode_status_name(status));
    if (status == DecodeStatus::ok) {
      EXPECT_EQ(bits_of(made.out), bits_of(expected));
    }
  }
}

TEST_P(ElementDecode, MovesTheBytesOfTheDesign) {
  constexpr std::size_t kCount = 32768;
  for (const bool adds : {false, true}) {
    const std::vector<EncodedBlock> blocks(adds ? 4 : 1, block_of(gaussian(kCount, 1)));
    DecodeLaunch launch(blocks);
    LaunchOptions options = options_of(1);
    options.meter_traffic = true;
    const Decoded made = launch.run(adds ? GetParam().add : GetParam().decode,
                                    std::vector<float>(kCount, 1.0f), options);
    EXPECT_EQ(made.report.finding, "");
    const double each =
        static_cast<double>(made.report.traffic.global_bytes()) / static_cast<double>(kCount);
    const double design = adds ? 8.0 + 4.0 * GetParam().block_bytes : 4.0 + GetParam().block_bytes;
    std::printf("[ counted  ] %zu blocks: %.3f bytes an element\n", blocks.size(), each);
    EXPECT_NEAR(each, design, 0.05 * design);
  }
}

TEST_P(ElementDecode, EveryRemovedBarrierIsFound) {
  constexpr std::size_t kCount = 6000;
  std::vector<EncodedBlock> blocks;
  for (std::uint64_t i = 0; i < 3; ++i) blocks.push_back(block_of(gaussian(kCount, i)));
  DecodeLaunch launch(blocks);
  launch.at_once = 2;
  const std::vector<float> sums(kCount, 1.0f);
  const Decoded whole = launch.run(GetParam().add, sums, options_of(1));
  EXPECT_EQ(whole.report.finding, "");
  for (const emulation::Site& site : whole.report.barriers) {
    for (const Schedule& schedule : schedules(7)) {
      LaunchOptions options;
      options.schedule = schedule;
      options.without_barrier = site;
      EXPECT_NE(launch.run(GetParam().add, sums, options).report.finding, "")
          << site.file << ':' << site.line << ' ' << schedule_text(options);
    }
  }
}

}  // namespace element_decode_test
}  // namespace tern::codec::device
