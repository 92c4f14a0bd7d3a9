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

// ---- Where the tuner chooses --------------------------------------------------------------------

class TunedContributionsTest : public ContributionsTest {
 protected:
  void encode(const std::string& recipe, const Terms& terms = {}) {
    contributions_.change_recipe(codec::parse_recipe(recipe).value());
    lost_ = contributions_.encode(bytes_of(values_), terms, slots_, workspace_);
  }
  static Layout tuned(const Layout& layout) {
    tern_block_layout said = layout.said();
    said.is_tuned = 1;
    return Layout(said);
  }
  std::uint8_t codec_of(std::uint64_t chunk) const { return header(chunk).codec; }
  static std::uint8_t id(wire::CodecId codec) { return static_cast<std::uint8_t>(codec); }

  const Layout tuned_ = tuned(layout_);
  Contributions contributions_{tuned_, codec::parse_recipe("raw").value()};
  const std::vector<float> values_ = drawn_floats(kCount);
  Lost lost_;
};

TEST_F(TunedContributionsTest, GoByAnotherRecipeEachTime) {
  encode("raw");
  EXPECT_EQ(codec_of(1), id(wire::CodecId::raw));
  EXPECT_EQ(lost_.elements, 0u);
  encode("ef(3lc:s=1,scale=4096)");
  EXPECT_EQ(codec_of(1), id(wire::CodecId::threelc));
  EXPECT_EQ(codec_of(3), id(wire::CodecId::threelc));
  encode("ef(int:bits=4)");
  EXPECT_EQ(codec_of(1), id(wire::CodecId::staged));
}

// One recipe brings what another has left out, and a block that loses nothing all of it.
TEST_F(TunedContributionsTest, OweFromOneRecipeToTheNext) {
  encode("ef(3lc:s=1,scale=4096)");
  const auto first = decoded(1);
  encode("ef(int:bits=4)", {.use = 1});
  const auto second = decoded(1);
  encode("lossless", {.use = 2});
  EXPECT_EQ(codec_of(1), id(wire::CodecId::raw));
  const wire::BlockHeader head = header(1);
  std::vector<float> third(head.elements);
  std::memcpy(third.data(), slot(1).data() + wire::kBlockHeaderBytes, kChunk * sizeof(float));
  for (std::uint64_t i = 0; i < kChunk; ++i) {
    ASSERT_NEAR(first[i] + second[i] + third[i], 3 * values_[kChunk + i], 1e-5f) << i;
  }
  EXPECT_EQ(residual_of(contributions_)[kChunk], 0.0f);
  encode("raw", {.use = 3});
  std::memcpy(third.data(), slot(1).data() + wire::kBlockHeaderBytes, kChunk * sizeof(float));
  EXPECT_EQ(third[5], values_[kChunk + 5]) << "nothing is owed any more";
}

TEST_F(TunedContributionsTest, OweStillWhatAFailedOperationWouldHavePaidBack) {
  encode("ef(3lc:s=1,scale=4096)");
  const auto owed = residual_of(contributions_);
  encode("raw", {.use = 1});
  const std::vector<std::byte> sent(slot(1).begin(), slot(1).end());
  contributions_.take_back();
  EXPECT_EQ(residual_of(contributions_), owed);
  encode("raw", {.use = 1});
  EXPECT_TRUE(std::ranges::equal(slot(1), sent));
}

TEST_F(TunedContributionsTest, MultiplyWhatIsOwedByTheStateScale) {
  encode("ef(3lc:s=1,scale=4096)");
  const auto owed = residual_of(contributions_);
  encode("raw", {.state_scale = 0.25f, .use = 1});
  float sent = 0.0f;
  std::memcpy(&sent, slot(1).data() + wire::kBlockHeaderBytes, sizeof(sent));
  EXPECT_EQ(sent, values_[kChunk] + 0.25f * owed[kChunk]);
}

TEST_F(TunedContributionsTest, GoRawForALookAtTheLink) {
  encode("ef(3lc:s=1,scale=4096)", {.raw_first = 1});
  EXPECT_EQ(codec_of(1), id(wire::CodecId::raw));      // the other node's first
  EXPECT_EQ(codec_of(3), id(wire::CodecId::threelc));  // and second
  EXPECT_EQ(lost_.elements, 100u);
}

TEST_F(TunedContributionsTest, SayWhatTheyLose) {
  encode("ef(3lc:s=1,scale=4096)");
  EXPECT_EQ(lost_.elements, kChunk + 100);
  double energy = 0.0, left = 0.0;
  const auto residual = residual_of(contributions_);
  for (const std::uint64_t chunk : {1u, 3u}) {
    const Chunk part = layout_.chunk(chunk);
    for (std::uint64_t i = part.begin; i < part.begin + part.elements; ++i) {
      energy += double{values_[i]} * values_[i];
      left += double{residual[i]} * residual[i];
    }
  }
  EXPECT_NEAR(lost_.energy, energy, 1e-4 * energy);
  EXPECT_NEAR(lost_.residual_energy, left, 1e-4 * left);
}

// What comes out of a checkpoint may be owed.
TEST_F(TunedContributionsTest, OweWhatTheyHaveReadOfAState) {
  contributions_.read_residual(std::vector<float>(kCount, 2.0f));
  encode("raw");
  float sent = 0.0f;
  std::memcpy(&sent, slot(1).data() + wire::kBlockHeaderBytes, sizeof(sent));
  EXPECT_EQ(sent, values_[kChunk] + 2.0f);
}

}  // namespace contributions_test
}  // namespace tern::blocks
