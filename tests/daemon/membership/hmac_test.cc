#include "daemon/membership/hmac.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tern::daemon {
namespace {

TEST(Hmac, AgreesWithTheVectorsOfRfc4231) {
  // Test case 1.
  const std::vector<std::byte> key(20, std::byte{0x0b});
  EXPECT_EQ(to_hex(hmac_sha256(key, {bytes_of("Hi There")})),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  // Test case 2, in parts, an empty one among them.
  EXPECT_EQ(to_hex(hmac_sha256(bytes_of("Jefe"), {bytes_of("what do ya want "), bytes_of(""),
                                                  bytes_of("for nothing?")})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  // Test case 6: a key longer than a block of SHA-256.
  const std::vector<std::byte> long_key(131, std::byte{0xaa});
  EXPECT_EQ(to_hex(hmac_sha256(
                long_key, {bytes_of("Test Using Larger Than Block-Size Key - Hash Key First")})),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, AnEmptyKeyIsAKey) {
  EXPECT_EQ(to_hex(hmac_sha256({}, {})),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Hmac, ComparesContentsAndLengths) {
  EXPECT_TRUE(equal_constant_time(bytes_of("abc"), bytes_of("abc")));
  EXPECT_FALSE(equal_constant_time(bytes_of("abc"), bytes_of("abd")));
  EXPECT_FALSE(equal_constant_time(bytes_of("abc"), bytes_of("ab")));
  EXPECT_TRUE(equal_constant_time({}, {}));
}

TEST(Hex, ReadsOnlyItsOwnForm) {
  std::array<std::byte, 2> out{};
  EXPECT_TRUE(from_hex("0fa9", out));
  EXPECT_EQ(to_hex(out), "0fa9");
  for (const char* const text : {"", "0fa", "0fa90", "0FA9", "0fag", "0f a"}) {
    EXPECT_FALSE(from_hex(text, out)) << text;
  }
}

TEST(RandomBytes, FillsAllOfTheSpan) {
  // Larger than what one getrandom call must give; 64 zero bytes in a row do not happen by chance.
  std::vector<std::byte> bytes(100'000);
  random_bytes(bytes);
  const std::vector<std::byte> zeros(64);
  EXPECT_FALSE(std::equal(zeros.begin(), zeros.end(), bytes.begin()));
  EXPECT_FALSE(std::equal(zeros.begin(), zeros.end(), bytes.end() - 64));
  random_bytes({});
}

}  // namespace
}  // namespace tern::daemon
