// What every sparsifier promises, on every target.
#include <limits>
#include <tuple>

#include "sparsifier_harness.h"

namespace tern::codec::sparsifier {
namespace sparsifier_test {

const Params kParams[] = {
    {.kind = Kind::topk, .share = 0.01f},
    {.kind = Kind::topk, .share = 0.2f},
    {.kind = Kind::topk, .count = 7},
    {.kind = Kind::topk, .exact = true, .share = 0.01f},
    {.kind = Kind::topk, .exact = true, .share = 0.5f},
    {.kind = Kind::topk, .share = 1.0f},
    {.kind = Kind::randk, .share = 0.1f},
    {.kind = Kind::randk, .count = 3},
    {.kind = Kind::blocksparse, .block = 64, .share = 0.3f},
    {.kind = Kind::blocksparse, .block = 7, .count = 2},
};

class Sparsifiers : public testing::TestWithParam<std::size_t> {
 protected:
  const Params& params_ = kParams[GetParam()];
};

TEST_P(Sparsifiers, KeepTheValuesAtAscendingPositions) {
  for (const std::size_t elements :
       {0u, 1u, 2u, 4u, 5u, 6u, 63u, 64u, 65u, 100u, 1000u, 4097u, 70000u}) {
    const auto values = gaussian(elements, 5);
    const Selected selected = select_guarded(params_, values);
    expect_ascending(selected, elements);
    ASSERT_EQ(selected.kept.empty(), elements == 0);
    for (std::size_t i = 0; i < selected.kept.size(); ++i) {
      ASSERT_EQ(selected.kept[i], values[selected.positions[i]]);
    }
  }
}

TEST_P(Sparsifiers, GiveTheSameBytesOnEveryTargetAtEveryAlignment) {
  for (const std::size_t elements : {1u, 31u, 64u, 129u, 1000u, 5000u, 20001u}) {
    const auto values = gaussian(elements, elements);
    const auto want = [&] {
      const ForcedTarget scalar("scalar");
      return select_guarded(params_, values, {9, true});
    }();
    for (const std::string& name : target_names()) {
      const ForcedTarget forced(name);
      for (const std::size_t shift : {0u, 1u, 3u, 13u}) {
        const Selected got = select_guarded(params_, values, {9, true, shift});
        ASSERT_EQ(got.section, want.section) << name << ' ' << elements;
        ASSERT_EQ(bits_of(got.kept), bits_of(want.kept)) << name << ' ' << elements;
      }
    }
  }
}

TEST_P(Sparsifiers, KeepSomethingOfSpecialValues) {
  for (const std::size_t elements : {1u, 4u, 5u, 6u, 200u, 9000u}) {
    for (const float value : {0.0f, -0.0f, 1.0f, std::numeric_limits<float>::denorm_min(),
                              std::numeric_limits<float>::max()}) {
      const std::vector<float> values(elements, value);
      const Selected selected = select_guarded(params_, values);
      ASSERT_FALSE(selected.kept.empty());
      for (const float kept : selected.kept) ASSERT_EQ(bits_of({&kept, 1}), bits_of({&value, 1}));
    }
  }
}

TEST_P(Sparsifiers, RefuseOrSurviveHostileSections) {
  constexpr std::uint64_t kSeed = 20;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const std::size_t elements = 777;
  const Selected good = select_guarded(params_, gaussian(elements, 6));
  for (std::size_t cut = 0; cut < good.section.size(); ++cut) {
    // A copy of just that many bytes, so that a sanitizer sees a read beyond them.
    const std::vector<std::byte> bytes(good.section.begin(),
                                       good.section.begin() + static_cast<std::ptrdiff_t>(cut));
    std::vector<std::uint32_t> positions(elements);
    Selection read;
    EXPECT_FALSE(read_section({params_.kind, bytes, elements}, positions.data(), read));
  }
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = good.section;
    const std::size_t changes = 1 + random() % 4;
    for (std::size_t j = 0; j < changes; ++j) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (i % 2 == 0) bytes[random() % std::min<std::size_t>(bytes.size(), 16)] ^= std::byte{1};
    Guarded<std::uint32_t> positions(elements, 0, 77u);
    Selection read;
    const bool accepted = read_section({params_.kind, bytes, elements}, positions.data(), read);
    ASSERT_TRUE(positions.intact());
    if (!accepted) continue;
    ASSERT_LE(read.section_bytes, bytes.size());
    ASSERT_LE(read.kept, elements);
    for (std::size_t j = 0; j < read.kept; ++j) {
      ASSERT_LT(positions.data()[j], elements);
      if (j != 0) {
        ASSERT_LT(positions.data()[j - 1], positions.data()[j]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Sparsifiers, testing::Range<std::size_t>(0, std::size(kParams)));

TEST(Sparsifier, CountsFromCountOrShare) {
  EXPECT_EQ(kept_bound({.kind = Kind::randk, .count = 10}, 4), 4u);
  EXPECT_EQ(kept_bound({.kind = Kind::randk, .count = 3, .share = 1.0f}, 40), 3u);
  EXPECT_EQ(kept_bound({.kind = Kind::randk, .share = 0.001f}, 40), 1u);
  EXPECT_EQ(kept_bound({.kind = Kind::randk, .share = 0.26f}, 10), 3u);
  EXPECT_EQ(kept_bound({.kind = Kind::blocksparse, .block = 64, .share = 0.5f}, 640), 320u);
  EXPECT_EQ(kept_bound({.kind = Kind::blocksparse, .block = 64, .share = 0.5f}, 10), 10u);
  EXPECT_EQ(kept_bound({.kind = Kind::topk, .count = 10}, 1000), 84u);
  EXPECT_EQ(kept_bound({.kind = Kind::topk, .exact = true, .count = 10}, 1000), 10u);
}

TEST(Sparsifier, ReaderKnowsNoOtherKind) {
  const std::vector<std::byte> bytes(64);
  std::uint32_t positions[8];
  Selection read;
  EXPECT_FALSE(read_section({Kind::none, bytes, 8}, positions, read));
  EXPECT_FALSE(read_section({static_cast<Kind>(200), bytes, 8}, positions, read));
}

}  // namespace sparsifier_test
}  // namespace tern::codec::sparsifier
