#include "lossless_harness.h"

namespace tern::codec::lossless {
namespace split_test {

class Split : public testing::TestWithParam<std::string> {
 protected:
  ByteVector coded(DType dtype, const ByteVector& in, std::size_t room, std::size_t shift = 0) {
    Places places(dtype, in.size(), room, shift);
    const std::size_t bytes =
        split_encode(dtype, in, places.out.span(), {places.work.span(), scratch_});
    EXPECT_TRUE(places.intact());
    EXPECT_LE(bytes, room);
    return {places.out.data(), places.out.data() + bytes};
  }
  bool decoded(DType dtype, const ByteVector& in, ByteVector& out, std::size_t shift = 0) {
    Places places(dtype, out.size(), out.size(), shift);
    const bool good = split_decode(dtype, in, places.out.span(), {places.work.span(), scratch_});
    EXPECT_TRUE(places.intact());
    std::copy_n(places.out.data(), out.size(), out.begin());
    return good;
  }

  ForcedTarget target_{GetParam()};
  entropy::Scratch scratch_;
};

TEST_P(Split, GivesBackEveryBit) {
  for (const DType dtype : kFloatTypes) {
    for (const std::size_t count : kCounts) {
      for (const ByteVector& in : {normal_array(dtype, count), special_array(dtype, count)}) {
        const ByteVector block = coded(dtype, in, in.size() + 200, count % 5);
        EXPECT_EQ(block.empty(), count == 0);
        if (block.empty()) continue;
        ByteVector out(in.size());
        ASSERT_TRUE(decoded(dtype, block, out, count % 5));
        ASSERT_TRUE(out == in) << count;
      }
    }
  }
}

TEST_P(Split, GaussianRatios) {
  const std::pair<DType, double> aims[] = {
      {DType::f32, 1.19}, {DType::bf16, 1.46}, {DType::f16, 1.15}};
  for (const auto& [dtype, aim] : aims) {
    const ByteVector in = normal_array(dtype, 1 << 17);
    const ByteVector block = coded(dtype, in, in.size() - 1);
    ASSERT_FALSE(block.empty());
    EXPECT_GT(static_cast<double>(in.size()) / static_cast<double>(block.size()), aim);
  }
}

TEST_P(Split, EveryTargetWritesTheSameBytes) {
  for (const DType dtype : kFloatTypes) {
    const ByteVector in = special_array(dtype, 5003);
    const ByteVector here = coded(dtype, in, in.size());
    target::force("scalar");
    EXPECT_TRUE(here == coded(dtype, in, in.size()));
    target::force(GetParam());
  }
}

TEST_P(Split, RefusesCutsAndSurvivesMutations) {
  std::mt19937_64 engine(12);
  for (const DType dtype : kFloatTypes) {
    const ByteVector in = normal_array(dtype, 700);
    const ByteVector block = coded(dtype, in, in.size());
    ByteVector out(in.size());
    for (std::size_t cut = 0; cut < block.size(); ++cut) {
      ASSERT_FALSE(decoded(dtype, {block.begin(), block.begin() + static_cast<long>(cut)}, out));
    }
    for (int trial = 0; trial < 1000; ++trial) {
      ByteVector changed = block;
      const std::size_t low = in.size() - 700;
      changed[low + engine() % (changed.size() - low)] = static_cast<std::byte>(engine());
      decoded(dtype, changed, out);
    }
  }
}

TEST_P(Split, NoiseDoesNotFitAndPartsOfElementsAreRefused) {
  std::mt19937_64 engine(13);
  ByteVector noise(40000);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(engine());
  for (const DType dtype : kFloatTypes) {
    EXPECT_TRUE(coded(dtype, noise, noise.size() - 1).empty());
    EXPECT_TRUE(coded(dtype, ByteVector(41), 60).empty());
  }
  EXPECT_TRUE(coded(DType::i32, noise, noise.size() + 500).empty());
}

INSTANTIATE_TEST_SUITE_P(Targets, Split, testing::ValuesIn(target_names()),
                         [](const auto& tested) { return tested.param; });

}  // namespace split_test
}  // namespace tern::codec::lossless
