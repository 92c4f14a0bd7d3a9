#include "daemon/lane/pass_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "codec/recipe.h"
#include "collective/mailbox.h"
#include "group_rig.h"

namespace tern::daemon::pass_blocks_test {
namespace {

using collective::Envelope;
using group_test::kChunk;
using group_test::OneNode;

std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 0.37f + static_cast<float>(i);
  return values;
}

class PassBlocksTest : public OneNode {
 protected:
  LaneResources& lane() { return node.resources; }
  // Of a send as `envelope` says.
  BlockRequest request_of(BlockVerb verb) {
    BlockRequest request;
    request.verb = verb;
    request.op = mailbox.submit({.sends = true, .envelope = envelope});
    blocks.attach(lane());
    return request;
  }
  std::vector<std::byte> encode(const std::vector<float>& values, const char* recipe,
                                std::uint64_t offset = 0) {
    return encode_by(blocks, values, recipe, offset);
  }
  std::vector<std::byte> encode_by(PassBlocks& by, std::vector<float> values, const char* recipe,
                                   std::uint64_t offset = 0) {
    codec::Recipe parsed;
    if (recipe != nullptr) parsed = codec::parse_recipe(recipe).value();
    std::vector<std::byte> out(lane().settings.block_bytes());
    const auto elements = std::as_writable_bytes(std::span(values));
    const Region from{elements.data(), elements.size()}, to{out.data(), out.size()};
    BlockRequest request = request_of(BlockVerb::encode);
    request.recipe = recipe != nullptr ? &parsed : nullptr;
    request.sum = {&from, 0, from.bytes};
    request.block = {&to, 0, to.bytes};
    request.offset = offset;
    by.attach(lane());
    const BlockCompletion completion = by.perform(request);
    EXPECT_EQ(completion.form, BlockForm::encoded);
    out.resize(completion.bytes);
    return out;
  }
  // What is wrong with the block, or how many bytes have come.
  std::string decode(std::vector<std::byte> block, std::size_t room_bytes) {
    room.assign(kChunk, -1.0f);
    const auto measure = PassBlocks::measure(block, envelope.dtype, room_bytes);
    if (measure.problem != nullptr) return measure.problem;
    const auto elements = std::as_writable_bytes(std::span(room)).first(measure.bytes);
    const Region from{block.data(), block.size()}, to{elements.data(), elements.size()};
    BlockRequest request = request_of(BlockVerb::deliver);
    request.block = {&from, 0, from.bytes};
    request.sum = {&to, 0, to.bytes};
    const char* const problem = blocks.perform(request).problem;
    return problem != nullptr ? problem : std::to_string(measure.bytes);
  }

  Envelope envelope{0, 1, 7, DType::f32, 10'000, true};
  collective::Mailbox mailbox{node.core.setup().shape};
  PassBlocks blocks{mailbox, 5};
  std::vector<float> room;
};

TEST_F(PassBlocksTest, WithoutARecipeElementsTravelAsTheyAre) {
  const std::vector<float> values = ramp(100);
  const auto block = encode(values, nullptr);
  EXPECT_EQ(block.size(), wire::kBlockHeaderBytes + 400);
  EXPECT_EQ(decode(block, 400), "400");
  EXPECT_TRUE(std::equal(values.begin(), values.end(), room.begin()));
  EXPECT_EQ(room[100], -1.0f);
}

TEST_F(PassBlocksTest, ARecipeMakesThemShorter) {
  const std::vector<float> values = ramp(kChunk);
  const auto block = encode(values, "bf16");
  EXPECT_EQ(block.size(), wire::kBlockHeaderBytes + 2 * kChunk);
  EXPECT_EQ(decode(block, 4 * kChunk), std::to_string(4 * kChunk));
  for (std::size_t i = 0; i < kChunk; ++i) ASSERT_NEAR(room[i], values[i], values[i] / 128);
}

TEST_F(PassBlocksTest, HalvesGoThroughFloats) {
  envelope.dtype = DType::bf16;
  std::vector<float> two(1);  // two elements of bf16: 1 and -2
  const std::uint32_t bits = 0xc0003f80;
  std::memcpy(two.data(), &bits, sizeof(bits));
  EXPECT_EQ(decode(encode(two, "bf16"), 4), "4");
  EXPECT_EQ(std::bit_cast<std::uint32_t>(room[0]), bits);
}

TEST_F(PassBlocksTest, AValueThatIsNotFiniteMakesThePieceRaw) {
  std::vector<float> values = ramp(10);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  const auto block = encode(values, "bf16");
  EXPECT_EQ(block.size(), wire::kBlockHeaderBytes + 40);
  EXPECT_EQ(lane().counters->nonfinite_chunks.load(), 1u);
  EXPECT_EQ(decode(block, 40), "40");
  const auto sent = std::as_bytes(std::span(values)), come = std::as_bytes(std::span(room));
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), come.begin())) << "bit for bit";
}

TEST_F(PassBlocksTest, DrawsAreThoseOfTheValuesAndOfWhoSendsThem) {
  const char* const recipe = "none(qsgd:levels=4)";
  const std::vector<float> values = ramp(kChunk);
  const auto block = encode(values, recipe);
  EXPECT_EQ(encode(values, recipe), block);
  EXPECT_NE(encode(values, recipe, 4 * kChunk), block) << "another place";
  envelope.tag = 8;
  EXPECT_NE(encode(values, recipe), block);
  envelope.tag = 7;
  PassBlocks of_another_seed(mailbox, 6);
  EXPECT_NE(encode_by(of_another_seed, values, recipe), block);
}

// Of scaled values the codes are the same, so what differs is the draws.
TEST_F(PassBlocksTest, OtherValuesHaveOtherDraws) {
  const std::vector<float> values = ramp(kChunk);
  std::vector<float> twice = values;
  for (float& value : twice) value *= 2;
  ASSERT_EQ(decode(encode(values, "none(qsgd:levels=4)"), 4 * kChunk), std::to_string(4 * kChunk));
  const std::vector<float> once = room;
  ASSERT_EQ(decode(encode(twice, "none(qsgd:levels=4)"), 4 * kChunk), std::to_string(4 * kChunk));
  bool differ = false;
  for (std::size_t i = 0; i < kChunk; ++i) differ = differ || room[i] != 2 * once[i];
  EXPECT_TRUE(differ);
}

TEST_F(PassBlocksTest, ABlockThatMakesNoSenseIsNamedAndWritesNothingBeyondItsRoom) {
  const std::string sizes = "the block's sizes are not those of a piece";
  const auto block = encode(ramp(100), "bf16");
  EXPECT_EQ(decode(block, 396), sizes) << "more than there is room for";
  EXPECT_EQ(decode({block.begin(), block.end() - 1}, 400), sizes);
  const auto changed = [&](auto change) {
    auto bytes = encode(ramp(100), nullptr);
    wire::BlockHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    change(header);
    std::memcpy(bytes.data(), &header, sizeof(header));
    return decode(bytes, 400);
  };
  EXPECT_EQ(changed([](auto&) {}), "400");
  EXPECT_NE(changed([](auto& header) { header.elements = 99; }), "396");
  EXPECT_NE(changed([](auto& header) { header.elements = 0; }), "0");
  EXPECT_NE(changed([](auto& header) { header.codec = 99; }), "400");
  EXPECT_NE(changed([](auto& header) { header.dtype = static_cast<std::uint8_t>(DType::i32); }),
            "400");
  EXPECT_NE(changed([](auto& header) {
              header.codec = static_cast<std::uint8_t>(wire::CodecId::lossless);
            }),
            "400");
  EXPECT_NE(changed([](auto& header) {
              header.codec = static_cast<std::uint8_t>(wire::CodecId::threelc);
              header.dtype = 0;
            }),
            "400");
}

TEST_F(PassBlocksTest, RecipesAreForFloatsOfFourBytesAndTwo) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    EXPECT_TRUE(PassBlocks::takes(type));
  }
  for (const DType type : {DType::f64, DType::i32, DType::u8, DType::c64, DType::fp8_e4m3}) {
    EXPECT_FALSE(PassBlocks::takes(type)) << dtype_name(type);
  }
}

}  // namespace
}  // namespace tern::daemon::pass_blocks_test
