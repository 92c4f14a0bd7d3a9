#include "wire/crc32c_folded.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace tern::wire {
namespace crc32c_folded_test {

using Bytes = std::span<const std::byte>;

// One bit at a time.
std::uint32_t by_bits(Bytes bytes, std::uint32_t inverted) {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;
  for (const std::byte byte : bytes) {
    inverted ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      inverted = (inverted >> 1) ^ ((inverted & 1) != 0 ? kPolynomial : 0);
    }
  }
  return inverted;
}

std::uint32_t with_the_rest_by_bits(Bytes bytes, std::uint32_t inverted) {
  const std::uint32_t folded = crc32c_folded(bytes, inverted);
  return by_bits(bytes, folded);
}

class Crc32cFolded : public testing::Test {
 protected:
  Crc32cFolded() : generator(seed), bytes(32 << 10) {
    RecordProperty("seed", std::to_string(seed));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator());
  }
  std::size_t below(std::size_t bound) { return generator() % bound; }

  const std::uint32_t seed =
      static_cast<std::uint32_t>(testing::UnitTest::GetInstance()->random_seed());
  std::mt19937 generator;
  std::vector<std::byte> bytes;
};

TEST_F(Crc32cFolded, IsThatOfTheBitsForEveryLengthAndPlace) {
  for (int i = 0; i < 300; ++i) {
    const std::size_t begin = below(256), size = below(bytes.size() - begin);
    const auto inverted = static_cast<std::uint32_t>(generator());
    const Bytes part = Bytes(bytes).subspan(begin, size);
    ASSERT_EQ(with_the_rest_by_bits(part, inverted), by_bits(part, inverted))
        << size << " bytes from " << begin << ", seed " << seed;
  }
}

TEST_F(Crc32cFolded, IsThatOfTheBitsAtTheEdgesOfBlocks) {
  constexpr std::size_t kShort = 1344, kLong = 7168;
  for (const std::size_t edge : {kShort, 2 * kShort, kLong, kLong + kShort, 2 * kLong, 3 * kLong}) {
    for (std::size_t size = edge - 2; size <= edge + 2; ++size) {
      const Bytes part = Bytes(bytes).first(size);
      EXPECT_EQ(with_the_rest_by_bits(part, ~0u), by_bits(part, ~0u)) << size;
    }
  }
}

TEST_F(Crc32cFolded, EveryBitCounts) {
  constexpr std::size_t kSize = 7168 + 1344;
  const std::uint32_t before = with_the_rest_by_bits(Bytes(bytes).first(kSize), ~0u);
  for (std::size_t at = 0; at < kSize; ++at) {
    const std::byte bit{static_cast<unsigned char>(1u << (at % 8))};
    bytes[at] ^= bit;
    EXPECT_NE(with_the_rest_by_bits(Bytes(bytes).first(kSize), ~0u), before) << "byte " << at;
    bytes[at] ^= bit;
  }
}

TEST_F(Crc32cFolded, LeavesWhatIsLessThanABlock) {
  Bytes left = Bytes(bytes).first(1000);
  EXPECT_EQ(crc32c_folded(left, 7), 7u);
  EXPECT_EQ(left.size(), 1000u);
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.2")) return;
  left = Bytes(bytes).first(20000);
  crc32c_folded(left, 7);
  EXPECT_LT(left.size(), 1344u) << "the rest is slower";
#endif
}

}  // namespace crc32c_folded_test
}  // namespace tern::wire
