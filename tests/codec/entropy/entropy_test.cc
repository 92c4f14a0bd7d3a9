#include "codec/entropy/entropy.h"

#include "entropy_harness.h"

namespace tern::codec::entropy {
namespace entropy_test {

class EntropyConformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { install_test_books(); }
  void TearDown() override { ASSERT_TRUE(install_codebooks({}).has_value()); }

  ForcedTarget target_{GetParam()};
  Scratch scratch_;
};

constexpr std::size_t kSizes[] = {0,  1,  2,   3,   4,   5,   15,   16,   17,   63,    64,
                                  65, 66, 127, 128, 129, 320, 4095, 4096, 4097, 65543, 1u << 20};

TEST_P(EntropyConformance, GivesBackWhatItCoded) {
  for (const char* distribution : kDistributions) {
    for (const std::size_t size : kSizes) {
      const ByteVector in = draw(distribution, size);
      const std::size_t shift = size % 7;
      for (const Kind kind : kKinds) {
        SCOPED_TRACE(testing::Message()
                     << distribution << " " << size << " kind " << static_cast<int>(kind));
        Params params = static_params(distribution);
        params.kind = kind;
        const ByteVector coded = encoded(params, in, scratch_, shift);
        if (coded.empty()) continue;
        const Decoded out = decoded(kind, coded, {size, shift}, scratch_);
        ASSERT_EQ(out.status, Status::ok);
        ASSERT_TRUE(out.bytes == in);
      }
    }
  }
}

TEST_P(EntropyConformance, FitsOrSaysThatItDoesNot) {
  const ByteVector in = draw("gaussian", 3000);
  for (const Kind kind : kKinds) {
    Params params = static_params("gaussian");
    params.kind = kind;
    const std::size_t whole = encoded(params, in, 4000, scratch_).size();
    ASSERT_NE(whole, 0u);
    // The libraries want room to spare.
    const bool exact = kind == Kind::huffman || kind == Kind::huffman_static || kind == Kind::zrun;
    for (std::size_t room = 0; room < whole; ++room) {
      const std::size_t bytes = encoded(params, in, room, scratch_).size();
      ASSERT_TRUE(bytes == 0 || !exact);
    }
    EXPECT_EQ(encoded(params, in, exact ? whole : 4000, scratch_).size(), whole);
  }
}

TEST_P(EntropyConformance, UniformBytesDoNotFit) {
  for (const Kind kind : kKinds) {
    Params params = static_params("uniform");
    params.kind = kind;
    EXPECT_TRUE(encoded(params, draw("uniform", 100000), scratch_).empty());
  }
}

TEST_P(EntropyConformance, EmptyAndUnknownGiveNothing) {
  for (const Kind kind : kKinds) {
    EXPECT_EQ(encode({kind, {}}, {}, {}, scratch_), 0u);
    EXPECT_EQ(decode(kind, {}, {}, scratch_), Status::corrupt);
  }
  ByteVector out(100);
  EXPECT_EQ(encode({Kind::none, {}}, draw("constant", 200), out, scratch_), 0u);
  EXPECT_EQ(encode(static_params("nobody"), draw("constant", 200), out, scratch_), 0u);
  EXPECT_EQ(decode(static_cast<Kind>(200), out, out, scratch_), Status::corrupt);
}

TEST_P(EntropyConformance, HuffmanIsWithinOneBitOfEntropy) {
  for (const char* distribution : kDistributions) {
    const std::size_t size = 1 << 18;
    const ByteVector in = draw(distribution, size);
    std::array<double, 256> counts{};
    for (const std::byte byte : in) ++counts[std::to_integer<std::size_t>(byte)];
    double entropy = 0;
    for (const double count : counts) {
      if (count != 0) entropy -= count / size * std::log2(count / size);
    }
    const auto coded = encoded({Kind::huffman, {}}, in, scratch_).size();
    if (std::string_view(distribution) == "uniform") continue;
    EXPECT_GE(8.0 * static_cast<double>(coded), entropy * size) << distribution;
    EXPECT_LT(8.0 * static_cast<double>(coded), (entropy + 1) * size) << distribution;
  }
}

TEST_P(EntropyConformance, OneSymbolIsTwoBytes) {
  EXPECT_EQ(encoded({Kind::huffman, {}}, draw("constant", 1000), scratch_), bytes_of({1, 77}));
}

// Symbols 0 to 5 as often as in the worked code 0, 100, 101, 110, 1110, 1111; each of the four
// streams is the message 0 1 2 3 4 5 0 0, or the bits that it begins with.
TEST_P(EntropyConformance, HuffmanBlockIsTheDocumentedOne) {
  ByteVector in;
  for (int segment = 0; segment < 4; ++segment) {
    const ByteVector part = bytes_of({0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 0});
    in.insert(in.end(), part.begin(), part.end());
  }
  const ByteVector coded = encoded({Kind::huffman, {}}, in, 200, scratch_);
  ByteVector expected =
      bytes_of({6, 0, 1, 2, 3, 4, 5, 0x31, 0x33, 0x44, 6, 0, 0, 0, 6, 0, 0, 0, 6, 0, 0, 0});
  for (int segment = 0; segment < 4; ++segment) {
    // 0 100 101 110 1110 1111 0 0 00000 100 100 101 101 110 110 0, padded with zeros.
    const ByteVector stream = bytes_of({0x4b, 0xbb, 0xc0, 0x49, 0x6e, 0xc0});
    expected.insert(expected.end(), stream.begin(), stream.end());
  }
  EXPECT_EQ(coded, expected);
}

TEST_P(EntropyConformance, EveryTargetWritesTheSameBytes) {
  for (const char* distribution : kDistributions) {
    const ByteVector in = draw(distribution, 70001);
    for (const Kind kind : {Kind::huffman, Kind::huffman_static, Kind::zrun}) {
      Params params = static_params(distribution);
      params.kind = kind;
      const ByteVector here = encoded(params, in, scratch_);
      target::force("scalar");
      const ByteVector reference = encoded(params, in, scratch_);
      target::force(GetParam());
      if (std::string_view(distribution) == "rare") continue;  // weights differ, codes may too
      EXPECT_TRUE(here == reference) << distribution;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EntropyConformance, testing::ValuesIn(target_names()),
                         [](const auto& tested) { return tested.param; });

}  // namespace entropy_test
}  // namespace tern::codec::entropy
