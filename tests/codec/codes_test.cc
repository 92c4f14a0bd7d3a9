#include "codec/codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "codec/codec.h"

namespace tern::codec {
namespace codes_test {

class BlockCodes : public testing::Test {
 protected:
  std::span<const std::byte> codes_of(const char* recipe_text) {
    const Recipe recipe = parse_recipe(recipe_text).value();
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = static_cast<float>(i % 37) - 18.0f;
    }
    EncodeRequest request;
    request.input = values_;
    payload_.resize(encode_bound(recipe, values_.size()));
    const EncodeResult result = encode(recipe, request, {payload_, header_}, workspace_);
    payload_.resize(result.payload_bytes);
    return block_codes(header_, payload_, workspace_);
  }

  std::vector<float> values_ = std::vector<float>(1000);
  std::vector<std::byte> payload_;
  wire::BlockHeader header_;
  Workspace workspace_;
};

TEST_F(BlockCodes, AreWhatFollowsTheScales) {
  const auto codes = codes_of("none(int:bits=4,block=256)");
  EXPECT_EQ(codes.size(), 500U);
  EXPECT_TRUE(std::ranges::equal(codes, std::span(payload_).last(500)));
}

TEST_F(BlockCodes, OfASparseBlockFollowItsPositions) {
  const auto codes = codes_of("none(topk:k=10,exact=on+fp16)");
  EXPECT_EQ(codes.size(), 20U);
  EXPECT_TRUE(std::ranges::equal(codes, std::span(payload_).last(20)));
}

TEST_F(BlockCodes, OfOtherBlocksAreNothing) {
  EXPECT_TRUE(codes_of("raw").empty());
  EXPECT_TRUE(codes_of("none(int:bits=4+huffman)").empty());
  codes_of("none(int:bits=4)");
  EXPECT_TRUE(block_codes(header_, {}, workspace_).empty());
}

}  // namespace codes_test
}  // namespace tern::codec
