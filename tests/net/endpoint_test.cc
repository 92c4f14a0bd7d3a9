#include <gtest/gtest.h>

#include "net/transport.h"

namespace tern::net {
namespace endpoint_test {

TEST(Endpoint, HasBracketsWhereItsHostHasColons) {
  EXPECT_EQ(to_text({"10.0.0.7", 7700}), "10.0.0.7:7700");
  EXPECT_EQ(to_text({"fd00::7", 7700}), "[fd00::7]:7700");
}

TEST(CanonicalHost, IsOneTextForEachAddress) {
  for (const char* text : {"fd00::7", "[fd00::7]", "FD00:0::7", "[fd00:0:0:0:0:0:0:7]"}) {
    EXPECT_EQ(canonical_host(text), "fd00::7") << text;
  }
  for (const char* text : {"10.0.0.7", "::ffff:10.0.0.7", "[::FFFF:10.0.0.7]", "::ffff:a00:7"}) {
    EXPECT_EQ(canonical_host(text), "10.0.0.7") << text;
  }
}

TEST(CanonicalHost, LeavesNamesAsTheyAre) {
  for (const char* text : {"node7.example", "node7", "", "fe80::1%eth0"}) {
    EXPECT_EQ(canonical_host(text), text);
  }
}

}  // namespace endpoint_test
}  // namespace tern::net
