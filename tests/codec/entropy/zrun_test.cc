#include "entropy_harness.h"

namespace tern::codec::entropy {
namespace zrun_test {

class ZeroRun : public testing::TestWithParam<std::string> {
 protected:
  ByteVector coded(const ByteVector& in) {
    ByteVector out = encoded({Kind::zrun, {}}, in, in.size() + in.size() / 128 + 2, scratch_);
    EXPECT_EQ(decoded(Kind::zrun, out, in.size(), scratch_).bytes, in);
    return out;
  }

  ForcedTarget target_{GetParam()};
  Scratch scratch_;
};

TEST_P(ZeroRun, TokensAreTheDocumentedOnes) {
  EXPECT_EQ(coded(ByteVector(1000, std::byte{121})),
            bytes_of({121, 255, 255, 255, 255, 255, 255, 255, 127 + 104}));
  EXPECT_EQ(coded(bytes_of({1, 0, 0, 0, 2, 0, 0, 3, 0, 0, 0, 0})),
            bytes_of({0, 0, 1, 130, 3, 2, 0, 0, 3, 131}));
}

TEST_P(ZeroRun, RunsOfEveryLengthAtEveryPlace) {
  for (std::size_t before = 0; before < 70; before += 3) {
    for (std::size_t run = 0; run < 140; ++run) {
      ByteVector in(before + run + 5, std::byte{0});
      for (std::size_t i = 0; i < before; ++i) in[i] = static_cast<std::byte>(i + 1);
      for (std::size_t i = before + run; i < in.size(); ++i) in[i] = std::byte{200};
      coded(in);
    }
  }
  for (std::size_t size = 4000; size < 4300; ++size) coded(ByteVector(size, std::byte{7}));
}

TEST_P(ZeroRun, NeverExpandsBeyondItsBound) {
  std::mt19937_64 engine(3);
  for (int trial = 0; trial < 300; ++trial) {
    ByteVector in(1 + engine() % 9000);
    const std::uint64_t density = 1 + engine() % 6;
    for (std::byte& byte : in)
      byte = static_cast<std::byte>(engine() % density == 0 ? 0 : engine() % 3);
    const ByteVector out = coded(in);
    EXPECT_FALSE(out.empty());
    EXPECT_LE(out.size(), 1 + in.size() + (in.size() + 127) / 128);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ZeroRun, testing::ValuesIn(target_names()),
                         [](const auto& tested) { return tested.param; });

}  // namespace zrun_test
}  // namespace tern::codec::entropy
