#include "bench/codec_stream.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace tern::bench {
namespace {

constexpr std::size_t kElements = 3000;

// What sender and reader agree on after three steps of slowly changing values, in two chunks.
class CodecStreams : public testing::TestWithParam<const char*> {};

TEST_P(CodecStreams, GiveTheReaderAboutWhatWasSent) {
  StreamOptions options;
  options.recipe = codec::parse_recipe(GetParam()).value();
  options.elements = kElements;
  options.chunk_elements = 2048;
  ASSERT_EQ(why_unavailable(options.recipe), std::nullopt);
  CodecStream stream(options);
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kElements);
  for (float& value : values) value = normal(engine);
  std::vector<float> decoded(kElements);
  for (int step = 0; step < 3; ++step) {
    for (float& value : values) value += 0.001f * normal(engine);
    const auto bytes = std::as_bytes(std::span(values));
    EXPECT_GT(stream.encode({bytes, values}).bytes, 2 * wire::kBlockHeaderBytes);
    stream.decode(std::as_writable_bytes(std::span(decoded)), decoded);
    double energy = 0;
    double error = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      energy += std::pow(static_cast<double>(values[i]), 2);
      error += std::pow(static_cast<double>(values[i] - decoded[i]), 2);
    }
    if (stream.decodes_own_type()) {
      EXPECT_EQ(error, 0.0);
    }
    EXPECT_LT(error, 0.1 * energy);
  }
}

INSTANTIATE_TEST_SUITE_P(AllForms, CodecStreams,
                         testing::Values("raw", "bf16", "none(int:bits=8)", "ef(int:bits=8)",
                                         "ef(int:bits=8+huffman)", "diana(natural)",
                                         "ef21(int:bits=4)", "ef(lloyd:bits=4)", "lossless",
                                         "xordelta"));

TEST(CodecStream, SaysWhatItKeeps) {
  StreamOptions options;
  options.elements = kElements;
  options.chunk_elements = 2048;
  options.recipe = codec::parse_recipe("diana(natural)").value();
  const CodecStream shifted(options);
  EXPECT_EQ(shifted.sender_state_bytes(), 4 * kElements);
  EXPECT_EQ(shifted.reader_state_bytes(), 4 * kElements + 2 * sizeof(std::uint64_t));
  options.recipe = codec::parse_recipe("xordelta").value();
  options.dtype = DType::bf16;
  const CodecStream delta(options);
  EXPECT_EQ(delta.sender_state_bytes(), 2 * kElements);
  EXPECT_EQ(delta.reader_state_bytes(), 2 * kElements);
}

TEST(CodecStream, KnowsWhichCodebookIsMissing) {
  const auto recipe = codec::parse_recipe("ef(int:bits=4+huffman:book=absent)").value();
  EXPECT_NE(why_unavailable(recipe), std::nullopt);
}

}  // namespace
}  // namespace tern::bench
