#include "wire/crc32c.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

namespace tern::wire {
namespace crc32c_test {

std::uint32_t of(std::string_view text, std::uint32_t crc = 0) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())), crc);
}

// RFC 3720 appendix B.4.
TEST(Crc32c, HasThePublishedValues) {
  EXPECT_EQ(of("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::array<std::byte, 32>{}), 0x8a9136aau);
  std::array<std::byte, 32> ones;
  ones.fill(std::byte{0xff});
  EXPECT_EQ(crc32c(ones), 0x62a8ab43u);
}

TEST(Crc32c, OfNothingIsZero) { EXPECT_EQ(crc32c({}), 0u); }

TEST(Crc32c, ContinuesAnEarlierResult) {
  const std::string_view text = "123456789";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(of(text.substr(cut), of(text.substr(0, cut))), 0xe3069283u) << cut;
  }
}

}  // namespace crc32c_test
}  // namespace tern::wire
