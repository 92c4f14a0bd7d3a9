#include "blocks/contributions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "codec/codec.h"
#include "tests/blocks/layouts.h"

namespace tern::blocks {
namespace contributions_test {

constexpr std::uint64_t kChunk = 4096;
constexpr std::uint64_t kCount = 3 * kChunk + 100;  // chunks 1 and 3 are the other node's

class ContributionsTest : public testing::Test {
 protected:
  Contributions make(const std::string& recipe) {
    return {layout_, codec::parse_recipe(recipe).value()};
  }
  wire::BlockHeader header(std::uint64_t chunk) const {
    wire::BlockHeader header;
    EXPECT_EQ(wire::parse_block_header(slot(chunk), header), wire::BlockError::none);
    return header;
  }
  std::span<const std::byte> slot(std::uint64_t chunk) const {
    return std::span(slots_).subspan(layout_.slot_offset(layout_.chunk(chunk)),
                                     layout_.said().slot_bytes);
  }
  std::vector<float> decoded(std::uint64_t chunk) {
    const wire::BlockHeader head = header(chunk);
    std::vector<float> values(head.elements);
    EXPECT_EQ(
        codec::decode({head, slot(chunk).subspan(wire::kBlockHeaderBytes, head.payload_bytes)},
                      values, workspace_),
        codec::DecodeStatus::ok);
    return values;
  }
  std::vector<float> residual_of(const Contributions& contributions) const {
    std::vector<float> residual(kCount, -1.0f);
    contributions.write_residual(residual);
    return residual;
  }

  const Layout layout_ = layout_of(kCount, kChunk);
  std::vector<std::byte> slots_ = std::vector<std::byte>(layout_.bytes());
  codec::Workspace workspace_;
};

TEST_F(ContributionsTest, KnowWhichChunksAreTheirs) {
  EXPECT_EQ(layout_.chunks(), 4u);
  EXPECT_TRUE(layout_.owns(layout_.chunk(0)));
  EXPECT_FALSE(layout_.owns(layout_.chunk(1)));
  EXPECT_TRUE(layout_.owns(layout_.chunk(2)));
  EXPECT_EQ(layout_.chunk(3).elements, 100u);
}

TEST_F(ContributionsTest, LeaveOwnChunksAsTheyAre) {
  Contributions contributions = make("3lc:s=1");
  const auto values = drawn_floats(kCount);
  contributions.encode(bytes_of(values), {}, slots_, workspace_);
  for (const std::uint64_t chunk : {0u, 2u}) {
    const auto own =
        bytes_of(values).subspan(chunk * kChunk * sizeof(float), kChunk * sizeof(float));
    EXPECT_TRUE(std::ranges::equal(slot(chunk).subspan(wire::kBlockHeaderBytes, own.size()), own));
  }
  EXPECT_EQ(header(1).codec, static_cast<std::uint8_t>(wire::CodecId::threelc));
  EXPECT_EQ(header(3).elements, 100u);
}

// What a block leaves out is what the next one brings.
TEST_F(ContributionsTest, OweWhatABlockLeavesOut) {
  Contributions contributions = make("3lc:s=1");
  const auto values = drawn_floats(kCount);
  contributions.encode(bytes_of(values), {}, slots_, workspace_);
  const auto residual = residual_of(contributions);
  const auto sent = decoded(1);
  for (std::uint64_t i = 0; i < kChunk; ++i) {
    ASSERT_EQ(residual[kChunk + i], values[kChunk + i] - sent[i]) << i;
  }
  EXPECT_EQ(residual[0], -1.0f);  // of an own chunk nothing is remembered here
  contributions.encode(bytes_of(values), {.use = 1}, slots_, workspace_);
  EXPECT_EQ(header(1).stream_step, 1u);
  EXPECT_NE(decoded(1), sent);
}

TEST_F(ContributionsTest, TakeBackWhatWasNotSent) {
  Contributions contributions = make("ef(lloyd:bits=3)");
  const auto values = drawn_floats(kCount);
  contributions.encode(bytes_of(values), {}, slots_, workspace_);
  const auto residual = residual_of(contributions);
  contributions.encode(bytes_of(drawn_floats(kCount, 2)), {.use = 1}, slots_, workspace_);
  const auto failed = decoded(1);
  EXPECT_NE(residual_of(contributions), residual);
  contributions.take_back();
  EXPECT_EQ(residual_of(contributions), residual);
  contributions.encode(bytes_of(drawn_floats(kCount, 2)), {.use = 1}, slots_, workspace_);
  EXPECT_EQ(decoded(1), failed);  // the levels that it begins with are those of before, too
}

TEST_F(ContributionsTest, AreRawWhereAValueIsNotFinite) {
  Contributions contributions = make("3lc:s=1");
  auto values = drawn_floats(kCount);
  values[kChunk + 7] = std::numeric_limits<float>::quiet_NaN();
  contributions.encode(bytes_of(values), {}, slots_, workspace_);
  EXPECT_EQ(header(1).codec, static_cast<std::uint8_t>(wire::CodecId::raw));
  EXPECT_EQ(header(1).flags, wire::kBlockNonfiniteRaw);
  EXPECT_EQ(header(3).codec, static_cast<std::uint8_t>(wire::CodecId::threelc));
  EXPECT_EQ(residual_of(contributions)[kChunk], 0.0f);
}

TEST_F(ContributionsTest, AreRawForAMaximum) {
  Contributions contributions = make("3lc:s=1");
  contributions.encode(bytes_of(drawn_floats(kCount)), {.reduction = Reduction::max}, slots_,
                       workspace_);
  EXPECT_EQ(header(1).codec, static_cast<std::uint8_t>(wire::CodecId::raw));
  EXPECT_EQ(header(1).flags, 0);
}

TEST_F(ContributionsTest, AreMultipliedBeforeTheyAreEncoded) {
  Contributions scaled = make("none(3lc:s=1)");
  const auto values = drawn_floats(kCount);
  scaled.encode(bytes_of(values), {.prescale = 0.5f}, slots_, workspace_);
  const auto got = decoded(1);
  float own = 0;
  std::memcpy(&own, slot(0).data() + wire::kBlockHeaderBytes, sizeof(own));
  EXPECT_EQ(own, 0.5f * values[0]);
  auto halves = values;
  for (float& value : halves) value *= 0.5f;
  scaled.encode(bytes_of(halves), {}, slots_, workspace_);
  EXPECT_EQ(decoded(1), got);
}

// A frame that travels with its announcement has less room than a slot.
TEST_F(ContributionsTest, AreRawWhereABlockMightNotFit) {
  tern_block_layout said = layout_.said();
  said.most_block_bytes = 100;
  const Layout narrow(said);
  Contributions contributions(narrow, codec::parse_recipe("3lc:s=1").value());
  contributions.encode(bytes_of(drawn_floats(kCount)), {}, slots_, workspace_);
  EXPECT_EQ(header(1).codec, static_cast<std::uint8_t>(wire::CodecId::raw));
  EXPECT_EQ(header(1).flags, 0);
}

}  // namespace contributions_test
}  // namespace tern::blocks
