#include "blocks/results.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "codec/accumulate.h"
#include "codec/recipe.h"
#include "tests/blocks/layouts.h"

namespace tern::blocks {
namespace results_test {

constexpr std::uint64_t kChunk = 1024;
constexpr std::uint64_t kCount = 2 * kChunk + 33;

struct Slots {
  explicit Slots(const Layout& of) : layout(of), bytes(of.bytes()) {}

  std::span<std::byte> slot(std::uint64_t number) {
    return std::span(bytes).subspan(layout.slot_offset(layout.chunk(number)),
                                    layout.said().slot_bytes);
  }
  // Each chunk by a recipe.
  void encode(const std::vector<float>& values, const std::vector<std::string>& recipes) {
    for (std::uint64_t number = 0; number < layout.chunks(); ++number) {
      const Chunk chunk = layout.chunk(number);
      codec::EncodeRequest request;
      request.input = std::span(values).subspan(chunk.begin, chunk.elements);
      wire::BlockHeader header;
      const auto encoded =
          codec::encode(codec::parse_recipe(recipes[number]).value(), request,
                        {slot(number).subspan(wire::kBlockHeaderBytes), header}, workspace);
      ASSERT_FALSE(encoded.nonfinite);
      wire::write_block_header(header, slot(number).first<wire::kBlockHeaderBytes>());
    }
  }

  const Layout& layout;
  std::vector<std::byte> bytes;
  codec::Workspace workspace;
};

// A block describes itself: chunks may come by different codecs.
TEST(Results, AreOfWhateverCodecTheyCome) {
  const Layout layout = layout_of(kCount, kChunk);
  Slots slots(layout);
  const auto values = drawn_floats(kCount);
  slots.encode(values, {"none(int:bits=8)", "raw", "none(3lc:s=1)"});
  std::vector<float> out(kCount);
  Results results(layout);
  ASSERT_TRUE(results.decode(slots.bytes, std::as_writable_bytes(std::span(out)), slots.workspace));
  EXPECT_NEAR(out[0], values[0], 0.05);
  EXPECT_EQ(out[kChunk], values[kChunk]);
  EXPECT_EQ(out[2 * kChunk - 1], values[2 * kChunk - 1]);
}

// The output of two bytes an element, and one that is not aligned, get the same values.
TEST(Results, AreRoundedToTheirType) {
  const Layout wide = layout_of(kCount, kChunk);
  const Layout narrow = layout_of(kCount, kChunk, TERN_BF16);
  Slots slots(wide);
  slots.encode(drawn_floats(kCount), {"none(3lc:s=1)", "none(int:bits=4)", "none(bf16)"});
  std::vector<float> floats(kCount);
  Results of_floats(wide);
  ASSERT_TRUE(
      of_floats.decode(slots.bytes, std::as_writable_bytes(std::span(floats)), slots.workspace));
  std::vector<std::byte> shifted(kCount * sizeof(float) + 1);
  ASSERT_TRUE(of_floats.decode(slots.bytes, std::span(shifted).subspan(1), slots.workspace));
  EXPECT_TRUE(std::ranges::equal(std::span(shifted).subspan(1), bytes_of(floats)));

  Slots of_narrow(narrow);
  for (std::uint64_t number = 0; number < 3; ++number) {
    std::memcpy(of_narrow.slot(number).data(), slots.slot(number).data(),
                of_narrow.slot(number).size());
  }
  std::vector<std::byte> expected(2 * kCount), got(2 * kCount);
  codec::from_f32(DType::bf16, floats.data(), kCount, expected.data());
  Results results(narrow);
  ASSERT_TRUE(results.decode(of_narrow.bytes, got, slots.workspace));
  EXPECT_EQ(got, expected);
}

struct Damage {
  const char* word;
  std::function<void(wire::BlockHeader&)> change;
};
class DamagedResults : public testing::TestWithParam<Damage> {};
INSTANTIATE_TEST_SUITE_P(
    Headers, DamagedResults,
    testing::Values(Damage{"codec", [](wire::BlockHeader& header) { header.codec = 77; }},
                    Damage{"sizes",
                           [](wire::BlockHeader& header) {
                             header.elements = 4, header.payload_bytes = 16;
                           }},
                    Damage{"dtype",
                           [](wire::BlockHeader& header) {
                             header.dtype = static_cast<std::uint8_t>(DType::bf16);
                             header.payload_bytes /= 2;
                           }},
                    Damage{"bad_header", [](wire::BlockHeader& header) {
                             header.codec = static_cast<std::uint8_t>(wire::CodecId::xordelta);
                             header.payload_bytes -= 1;
                           }}));

TEST_P(DamagedResults, AreNamed) {
  const Layout layout = layout_of(kCount, kChunk);
  Slots slots(layout);
  slots.encode(drawn_floats(kCount), {"raw", "raw", "raw"});
  wire::BlockHeader header;
  std::memcpy(&header, slots.slot(1).data(), sizeof(header));
  GetParam().change(header);
  std::memcpy(slots.slot(1).data(), &header, sizeof(header));
  std::vector<float> out(kCount);
  Results results(layout);
  const Status decoded =
      results.decode(slots.bytes, std::as_writable_bytes(std::span(out)), slots.workspace);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, Errc::corrupt_data);
  EXPECT_NE(decoded.error().text.find("chunk 1"), std::string::npos) << decoded.error().text;
  EXPECT_NE(decoded.error().text.find(GetParam().word), std::string::npos) << decoded.error().text;
}

}  // namespace results_test
}  // namespace tern::blocks
