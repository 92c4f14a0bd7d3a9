#include "codec/sparsifier/positions.h"

#include <numeric>

#include "sparsifier_harness.h"

namespace tern::codec::sparsifier {
namespace positions_test {

std::vector<std::byte> written(const std::vector<std::uint32_t>& positions, std::size_t elements) {
  Guarded<std::byte> out(position_bytes(positions.size(), elements), 0, std::byte{0xa5});
  EXPECT_EQ(write_positions(positions, elements, out.data()), out.span().size());
  EXPECT_TRUE(out.intact());
  return {out.data(), out.data() + out.span().size()};
}

TEST(Positions, RoundTripEveryCountOfSmallChunks) {
  constexpr std::uint64_t kSeed = 4;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (std::size_t elements = 1; elements <= 150; ++elements) {
    std::vector<std::uint32_t> all(elements);
    std::iota(all.begin(), all.end(), 0u);
    for (std::size_t count = 1; count <= elements; ++count) {
      std::vector<std::uint32_t> positions;
      std::sample(all.begin(), all.end(), std::back_inserter(positions), count, random);
      const auto bytes = written(positions, elements);
      std::vector<std::uint32_t> out(elements);
      PositionsRead read;
      ASSERT_TRUE(read_positions(bytes, elements, out.data(), read)) << elements << ' ' << count;
      ASSERT_EQ(read.bytes, bytes.size());
      out.resize(read.count);
      ASSERT_EQ(out, positions);
    }
  }
}

TEST(Positions, BoundHoldsForEveryCountUpToIt) {
  for (const std::size_t elements : {1u, 2u, 3u, 64u, 100u, 1000u, 4096u, 5000u}) {
    std::size_t largest = 0;
    for (std::size_t count = 0; count <= elements; ++count) {
      largest = std::max(largest, position_bytes(count, elements));
      ASSERT_LE(largest, position_bytes_bound(count, elements)) << elements << ' ' << count;
    }
  }
}

TEST(Positions, CostAsStated) {
  // 65,536 elements, one in a hundred: l = 6, 656 low parts and 656 + 1023 bits.
  EXPECT_EQ(position_bytes(656, 65536), 5u + 492u + 210u);
  EXPECT_EQ(position_bytes(32768, 65536), 5u + 8192u);
}

TEST(Positions, BytesOfBothForms) {
  // Worked in docs/sparsifiers.md.
  const auto bitmap = written({0, 2, 3}, 10);
  EXPECT_EQ(bitmap, (std::vector<std::byte>{std::byte{3}, {}, {}, {}, {}, std::byte{0x0d}, {}}));
  // l = 4: low parts 5, 15, 2; high parts 0, 1, 3 at the bits 0, 2, 5.
  const auto sparse = written({5, 31, 50}, 64);
  EXPECT_EQ(sparse, (std::vector<std::byte>{std::byte{3},
                                            {},
                                            {},
                                            {},
                                            std::byte{1},
                                            std::byte{0xf5},
                                            std::byte{0x02},
                                            std::byte{0x25}}));
}

TEST(Positions, RefuseOtherFormThanTheShorter) {
  auto bytes = written({0, 2, 3}, 10);
  bytes[4] = std::byte{1};
  std::uint32_t out[10];
  PositionsRead read;
  EXPECT_FALSE(read_positions(bytes, 10, out, read));
}

TEST(Positions, RefuseBitsBeyondTheEnd) {
  auto bytes = written({0, 2, 3}, 10);
  bytes[5] = std::byte{0x05};
  bytes[6] = std::byte{0x04};  // element 10 of ten
  std::uint32_t out[10];
  PositionsRead read;
  EXPECT_FALSE(read_positions(bytes, 10, out, read));
}

TEST(Positions, RefuseDescendingLowParts) {
  // Two positions with one high part, the low parts exchanged.
  auto bytes = written({5, 9, 50}, 64);
  std::uint32_t out[64];
  PositionsRead read;
  ASSERT_TRUE(read_positions(bytes, 64, out, read));
  bytes[5] = std::byte{0x59};
  EXPECT_FALSE(read_positions(bytes, 64, out, read));
  bytes[5] = std::byte{0x55};  // twice the same
  EXPECT_FALSE(read_positions(bytes, 64, out, read));
}

}  // namespace positions_test
}  // namespace tern::codec::sparsifier
