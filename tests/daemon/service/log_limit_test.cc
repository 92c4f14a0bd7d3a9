#include "daemon/service/log_limit.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(LogLimit, AdmitsALineASecondAboutEachParty) {
  LogLimit<int> limit;
  EXPECT_TRUE(limit.admits(7, 0));
  EXPECT_FALSE(limit.admits(7, kSecond - 1));
  EXPECT_TRUE(limit.admits(8, kSecond - 1));
  EXPECT_TRUE(limit.admits(7, kSecond));
  EXPECT_FALSE(limit.admits(8, 2 * kSecond - 2));
  EXPECT_TRUE(limit.admits(8, 2 * kSecond - 1));
}

TEST(LogLimit, IsNotEscapedByNewNames) {
  LogLimit<int> limit;
  int admitted = 0;
  for (int party = 0; party < 10'000; ++party) admitted += limit.admits(party, 5) ? 1 : 0;
  EXPECT_EQ(admitted, 64);
  EXPECT_TRUE(limit.admits(10'000, 5 + kSecond));
}

}  // namespace
}  // namespace tern::daemon
