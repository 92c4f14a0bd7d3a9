// Bytes that no encoder wrote: whatever they say, nothing outside the spans is touched.
#include "entropy_harness.h"

namespace tern::codec::entropy {
namespace hostile_test {

class HostileEntropy : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { install_test_books(); }
  void TearDown() override { ASSERT_TRUE(install_codebooks({}).has_value()); }

  ByteVector coded_by(Kind kind, const char* distribution, const ByteVector& in) {
    Params params = static_params(distribution);
    params.kind = kind;
    return encoded(params, in, in.size() + 600, scratch_);
  }
  static bool is_ours(Kind kind) {
    return kind == Kind::huffman || kind == Kind::huffman_static || kind == Kind::zrun;
  }

  ForcedTarget target_{GetParam()};
  Scratch scratch_;
};

TEST_P(HostileEntropy, EveryCutIsRefused) {
  for (const char* distribution : kDistributions) {
    const ByteVector in = draw(distribution, 1500);
    for (const Kind kind : kKinds) {
      const ByteVector coded = coded_by(kind, distribution, in);
      for (std::size_t cut = 0; cut < coded.size(); ++cut) {
        const ByteVector part(coded.begin(), coded.begin() + static_cast<std::ptrdiff_t>(cut));
        ASSERT_NE(decoded(kind, part, in.size(), scratch_).status, Status::ok)
            << distribution << " kind " << static_cast<int>(kind) << " cut " << cut;
      }
    }
  }
}

TEST_P(HostileEntropy, OtherCountsAndTrailingBytesAreRefused) {
  for (const char* distribution : {"gaussian", "two", "fibonacci", "sparse"}) {
    const ByteVector in = draw(distribution, 1500);
    for (const Kind kind : kKinds) {
      ByteVector coded = coded_by(kind, distribution, in);
      for (const std::size_t count : {1ul, 4ul, 1400ul, 1600ul, 6000ul}) {
        EXPECT_NE(decoded(kind, coded, count, scratch_).status, Status::ok)
            << distribution << " kind " << static_cast<int>(kind) << " count " << count;
      }
      coded.push_back(std::byte{0});
      EXPECT_NE(decoded(kind, coded, in.size(), scratch_).status, Status::ok)
          << distribution << " kind " << static_cast<int>(kind);
    }
  }
}

TEST_P(HostileEntropy, MutationsStayInsideTheSpans) {
  std::mt19937_64 engine(7);
  for (const char* distribution : kDistributions) {
    for (const std::size_t size : {100ul, 3000ul}) {
      const ByteVector in = draw(distribution, size);
      for (const Kind kind : kKinds) {
        const ByteVector coded = coded_by(kind, distribution, in);
        if (coded.empty()) continue;
        for (int trial = 0; trial < 400; ++trial) {
          ByteVector changed = coded;
          for (std::uint64_t n = 1 + engine() % 4; n > 0; --n) {
            // Half of them in the header, where sizes and lengths are.
            const std::size_t reach =
                engine() % 2 == 0 ? std::min<std::size_t>(40, changed.size()) : changed.size();
            changed[engine() % reach] = static_cast<std::byte>(engine());
          }
          decoded(kind, changed, size, scratch_);
        }
      }
    }
  }
}

TEST_P(HostileEntropy, RandomBytesStayInsideTheSpans) {
  std::mt19937_64 engine(8);
  for (int trial = 0; trial < 3000; ++trial) {
    ByteVector noise = draw("uniform", engine() % 300, engine());
    for (const Kind kind : kKinds) decoded(kind, noise, 1 + engine() % 2000, scratch_);
  }
}

// A code of one bit makes the longest output of few bytes.
TEST_P(HostileEntropy, IncompleteAndOverfullCodesAreRefused) {
  const auto status = [&](ByteVector block) {
    block.resize(40);
    return decoded(Kind::huffman, block, 100, scratch_).status;
  };
  EXPECT_EQ(status(bytes_of({2, 0, 1, 0x21})), Status::corrupt);           // 1/2 + 1/4
  EXPECT_EQ(status(bytes_of({3, 0, 1, 2, 0x11, 0x01})), Status::corrupt);  // 3/2
  EXPECT_EQ(status(bytes_of({2, 0, 1, 0x1c})), Status::corrupt);           // 12 bits
  EXPECT_EQ(status(bytes_of({2, 1, 0, 0x11})), Status::corrupt);           // not ascending
  EXPECT_EQ(status(bytes_of({85})), Status::corrupt);
  EXPECT_EQ(status(bytes_of({255})), Status::corrupt);
}

INSTANTIATE_TEST_SUITE_P(Targets, HostileEntropy, testing::ValuesIn(target_names()),
                         [](const auto& tested) { return tested.param; });

}  // namespace hostile_test
}  // namespace tern::codec::entropy
