#include "cuda/device_recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <utility>

namespace tern::cuda {
namespace device_recipe_test {

using gpu::Kernel;

constexpr std::uint32_t kSm80 = 163 * 1024;
constexpr std::uint32_t kSm86 = 99 * 1024;
constexpr std::uint32_t kSm90 = 227 * 1024;

TEST(DeviceRecipe, EachHasItsKernel) {
  const std::pair<const char*, Kernel> cases[] = {
      {"ef(3lc:s=1,scale=4096)", Kernel::threelc_encode},
      {"none(3lc)", Kernel::threelc_encode},
      {"ef(int:bits=8)", Kernel::int8_encode},
      {"none(int:bits=4)", Kernel::int4_encode},
      {"ef(fp8)", Kernel::fp8_e4m3_encode},
      {"fp8:format=e5m2", Kernel::fp8_e5m2_encode},
      {"bf16", Kernel::bf16_encode},
      {"ef(bf16)", Kernel::bf16_encode}};
  for (const auto& [text, kernel] : cases) {
    const auto recipe = DeviceRecipe::of(text);
    ASSERT_TRUE(recipe.has_value()) << text;
    EXPECT_TRUE(recipe->encodes()) << text;
    const auto encoder = recipe->encoder(4096, kSm80);
    ASSERT_TRUE(encoder.has_value()) << text;
    EXPECT_EQ(encoder->kernel, kernel) << text;
  }
}

TEST(DeviceRecipe, RawNeedsNone) {
  const auto recipe = DeviceRecipe::of("raw");
  ASSERT_TRUE(recipe.has_value());
  EXPECT_FALSE(recipe->encodes());
  EXPECT_FALSE(recipe->has_residual());
}

TEST(DeviceRecipe, WhatHasNoKernelsIsRefusedWithAWayOut) {
  for (const char* const text :
       {"ef(3lc:layout=paper)", "ef(3lc:pad=0)", "none(int:bits=8,round=stochastic)", "int:bits=2",
        "topk:p=0.01", "int:bits=4+huffman", "qsgd", "lossless", "fp16", "ef(3lc:scale=tensor)"}) {
    const auto recipe = DeviceRecipe::of(text);
    ASSERT_FALSE(recipe.has_value()) << text;
    EXPECT_EQ(recipe.error().code, Errc::unsupported);
    EXPECT_THAT(recipe.error().text, testing::HasSubstr("without client_blocks"));
  }
}

// So a tensor can be bound whatever the tuner tries just then.
TEST(DeviceRecipe, WhatTheTunerChoosesWithoutAKernelGoesRaw) {
  tern_block_layout layout = TERN_BLOCK_LAYOUT_INIT;
  const std::pair<const char*, bool> cases[] = {
      {"lossless", false}, {"ef(topk:p=0.01)", false}, {"raw", false}, {"int:bits=8", true}};
  for (const auto& [text, encodes] : cases) {
    std::strncpy(layout.recipe, text, sizeof(layout.recipe) - 1);
    layout.is_tuned = 1;
    EXPECT_EQ(DeviceRecipe::next_of(layout).value().encodes(), encodes) << text;
    layout.is_tuned = 0;
    EXPECT_EQ(DeviceRecipe::next_of(layout).has_value(), encodes || text == std::string_view("raw"))
        << text;
  }
}

// 256 KiB do not lie in a block's shared memory: 3LC reads them twice, the others need it smaller.
TEST(DeviceRecipe, LargeChunksAreReadTwiceOrRefused) {
  const auto threelc = DeviceRecipe::of("3lc");
  EXPECT_EQ(threelc->encoder(32768, kSm80)->kernel, Kernel::threelc_encode);
  EXPECT_EQ(threelc->encoder(65536, kSm90)->kernel, Kernel::threelc_encode_twice);
  const auto integer = DeviceRecipe::of("int:bits=8");
  EXPECT_TRUE(integer->encoder(32768, kSm80).has_value());
  EXPECT_TRUE(integer->encoder(16384, kSm86).has_value());
  EXPECT_EQ(threelc->encoder(16384, kSm86)->kernel, Kernel::threelc_encode);
  const auto refused = integer->encoder(65536, kSm90);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().text, testing::HasSubstr("smaller chunk_bytes"));
}

TEST(DecoderOf, FollowsTheHeader) {
  wire::BlockHeader header;
  header.codec = static_cast<std::uint8_t>(wire::CodecId::threelc);
  header.flags = wire::kBlockZeroRun;
  EXPECT_EQ(decoder_of(header), Kernel::threelc_decode);
  header.flags = wire::kBlockPaperLayout;
  EXPECT_EQ(decoder_of(header), std::nullopt);
  header.flags = 0;
  header.codec = static_cast<std::uint8_t>(wire::CodecId::staged);
  header.stages.quantizer = static_cast<std::uint8_t>(wire::QuantizerId::integer);
  header.stages.bits = 4;
  EXPECT_EQ(decoder_of(header), Kernel::int4_decode);
  header.stages.bits = 5;
  EXPECT_EQ(decoder_of(header), std::nullopt);
  header.stages.bits = 8;
  header.stages.entropy = static_cast<std::uint8_t>(wire::EntropyId::huffman);
  EXPECT_EQ(decoder_of(header), std::nullopt);
  header = {};
  header.codec = static_cast<std::uint8_t>(wire::CodecId::bf16);
  EXPECT_EQ(decoder_of(header), Kernel::bf16_decode);
  header.codec = static_cast<std::uint8_t>(wire::CodecId::lossless);
  EXPECT_EQ(decoder_of(header), std::nullopt);
}

}  // namespace device_recipe_test
}  // namespace tern::cuda
