#include "lossless_harness.h"

namespace tern::codec::lossless {
namespace xor_delta_test {

// A sender and a receiver of one stream.
class XorDelta : public testing::TestWithParam<std::string> {
 protected:
  // Returns the block, and checks that the receiver has `in` and both ends have the same `last`.
  ByteVector step(DType dtype, const ByteVector& in, std::size_t shift = 0) {
    ByteVector block = coded(dtype, in, in.size() + 300, shift);
    EXPECT_FALSE(block.empty());
    EXPECT_TRUE(sent_ == in);
    ByteVector out(in.size());
    EXPECT_TRUE(decoded(dtype, block, out, shift));
    EXPECT_TRUE(out == in);
    EXPECT_TRUE(received_ == sent_);
    return block;
  }
  ByteVector coded(DType dtype, const ByteVector& in, std::size_t room, std::size_t shift = 0) {
    Places places(dtype, in.size(), room, shift);
    std::copy(sent_.begin(), sent_.end(), places.last.data());
    const std::size_t bytes = xor_encode({dtype, places.last.span()}, in, places.out.span(),
                                         {places.work.span(), scratch_});
    EXPECT_TRUE(places.intact());
    EXPECT_LE(bytes, room);
    sent_.assign(places.last.data(), places.last.data() + in.size());
    return {places.out.data(), places.out.data() + bytes};
  }
  bool decoded(DType dtype, const ByteVector& in, ByteVector& out, std::size_t shift = 0) {
    Places places(dtype, out.size(), out.size(), shift);
    std::copy(received_.begin(), received_.end(), places.last.data());
    const bool good = xor_decode({dtype, places.last.span()}, in, places.out.span(),
                                 {places.work.span(), scratch_});
    EXPECT_TRUE(places.intact());
    std::copy_n(places.out.data(), out.size(), out.begin());
    received_.assign(places.last.data(), places.last.data() + out.size());
    return good;
  }
  void start(std::size_t bytes) {
    sent_.assign(bytes, std::byte{0});
    received_ = sent_;
  }

  ForcedTarget target_{GetParam()};
  entropy::Scratch scratch_;
  ByteVector sent_;
  ByteVector received_;
};

void change(ByteVector& bytes, DType dtype, double part, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> uniform;
  for (std::size_t i = 0; i < bytes.size() / width_of(dtype); ++i) {
    if (uniform(engine) < part) bytes[i * width_of(dtype)] ^= static_cast<std::byte>(engine() | 1);
  }
}

TEST_P(XorDelta, EveryTargetWritesTheSameBytes) {
  for (const DType dtype : kFloatTypes) {
    for (const std::size_t count : kCounts) {
      const ByteVector before = special_array(dtype, count);
      ByteVector in = before;
      change(in, dtype, 0.02, count);
      sent_ = before;
      const ByteVector here = coded(dtype, in, in.size() + 300, count % 3);
      sent_ = before;
      target::force("scalar");
      EXPECT_TRUE(here == coded(dtype, in, in.size() + 300));
      target::force(GetParam());
    }
  }
}

TEST_P(XorDelta, BothEndsFollowAStream) {
  for (const DType dtype : kFloatTypes) {
    for (const std::size_t count : kCounts) {
      ByteVector in = special_array(dtype, count);
      start(in.size());
      step(dtype, in, count % 5);
      for (const double part : {0.0, 0.0005, 0.02, 0.3, 1.0, 0.02}) {
        change(in, dtype, part, count);
        const ByteVector block = step(dtype, in, count % 3);
        if (part == 0.0) {
          EXPECT_EQ(block, ByteVector(5));
        }
      }
    }
  }
}

TEST_P(XorDelta, TwoPercentChangedIsTwelveTimesShorter) {
  ByteVector in = normal_array(DType::bf16, 1 << 16);
  start(in.size());
  EXPECT_LT(step(DType::bf16, in).size() * 145, in.size() * 100);
  change(in, DType::bf16, 0.02, 1);
  EXPECT_LT(step(DType::bf16, in).size() * 12, in.size());
}

TEST_P(XorDelta, BlockIsTheDocumentedOne) {
  constexpr std::size_t kBytes = 2;  // of an element
  ByteVector in(kBytes * 600);
  start(in.size());
  in[kBytes * 3] = std::byte{0x11};
  in[kBytes * 300 + 1] = std::byte{0x22};
  const ByteVector block = step(DType::bf16, in);
  const std::vector<int> expected = {0, 2, 0, 0, 0, 0x11, 0, 0, 0x22, 3, 255, 41};
  ASSERT_EQ(block.size(), expected.size());
  for (std::size_t i = 0; i < block.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(block[i]), expected[i]) << i;
  }
}

TEST_P(XorDelta, TheLargestChunkFitsTheWorkspace) {
  Workspace workspace;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::size_t width = dtype == DType::f32 ? 4 : 2;
    const std::size_t bytes = width * wire::kMaxBlockElements;
    EXPECT_GE(workspace.bytes().size(), work_bytes(dtype, bytes));
  }
}

TEST_P(XorDelta, FailureLeavesLastAlone) {
  const DType dtype = DType::bf16;
  ByteVector in = normal_array(dtype, 3000);
  start(in.size());
  step(dtype, in);
  const ByteVector before = sent_;
  change(in, dtype, 0.05, 3);
  for (const std::size_t room : {0ul, 1ul, 4ul, 5ul, 6ul, 100ul, 300ul}) {
    EXPECT_TRUE(coded(dtype, in, room).empty());
    EXPECT_TRUE(sent_ == before);
  }
  const ByteVector block = coded(dtype, in, in.size());
  ByteVector out(in.size());
  for (std::size_t cut = 0; cut < block.size(); ++cut) {
    ASSERT_FALSE(decoded(dtype, {block.begin(), block.begin() + static_cast<long>(cut)}, out));
    ASSERT_TRUE(received_ == before);
  }
  std::mt19937_64 engine(9);
  for (int trial = 0; trial < 2000; ++trial) {
    ByteVector changed = block;
    const std::size_t reach = trial % 2 == 0 ? 8 : changed.size();
    changed[engine() % reach] = static_cast<std::byte>(engine());
    received_ = before;
    if (!decoded(dtype, changed, out)) {
      ASSERT_TRUE(received_ == before);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, XorDelta, testing::ValuesIn(target_names()),
                         [](const auto& tested) { return tested.param; });

}  // namespace xor_delta_test
}  // namespace tern::codec::lossless
