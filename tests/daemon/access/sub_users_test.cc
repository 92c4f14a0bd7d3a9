#include "daemon/access/sub_users.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace tern::daemon {
namespace {

SubUsers read(const std::string& text) {
  const std::string path = testing::TempDir() + "/subuid";
  std::ofstream(path) << text;
  SubUsers users = SubUsers::read(path);
  std::remove(path.c_str());
  return users;
}

TEST(SubUsers, ARangeBelongsToItsOwner) {
  const SubUsers users = read("1000:100000:65536\nroot:200000:10\n");
  EXPECT_EQ(users.owner_of(99'999), 99'999u);
  EXPECT_EQ(users.owner_of(100'000), 1'000u);
  EXPECT_EQ(users.owner_of(165'535), 1'000u);
  EXPECT_EQ(users.owner_of(165'536), 165'536u);
  EXPECT_EQ(users.owner_of(200'009), 0u) << "a name";
  EXPECT_EQ(users.owner_of(1'000), 1'000u);
}

TEST(SubUsers, RangesInAnyOrderMayOverlap) {
  const SubUsers users = read("1003:5000:10\n1001:3000:100\n1002:3050:100\n1004:3010:20\n");
  EXPECT_EQ(users.owner_of(2'999), 2'999u);
  EXPECT_EQ(users.owner_of(3'015), 1'001u);
  EXPECT_EQ(users.owner_of(3'099), 1'001u);
  EXPECT_EQ(users.owner_of(3'100), 1'002u);
  EXPECT_EQ(users.owner_of(3'149), 1'002u);
  EXPECT_EQ(users.owner_of(3'150), 3'150u);
  EXPECT_EQ(users.owner_of(5'009), 1'003u);
  EXPECT_EQ(users.owner_of(5'010), 5'010u);
}

TEST(SubUsers, LinesThatCannotBeReadAreLeftOut) {
  const SubUsers users = read(
      "# a comment\n\n1000\n1000:5\n1000:x:5\n1000:5:x\n1000:500:0\nnobody-has-this-name:600:10\n"
      "1000:700:4294967296\n:800:10\n1001:900:10:\n1002:4294967290:65536\n");
  for (const std::uint32_t user : {5u, 500u, 600u, 700u, 900u}) {
    EXPECT_EQ(users.owner_of(user), user);
  }
  EXPECT_EQ(users.owner_of(4'294'967'295u), 1'002u) << "a range that goes beyond the last user";
  EXPECT_EQ(users.owner_of(0), 0u);
}

TEST(SubUsers, WithoutAFileEveryoneIsAlone) {
  EXPECT_EQ(SubUsers::read("/nowhere/subuid").owner_of(100'000), 100'000u);
  EXPECT_EQ(SubUsers().owner_of(100'000), 100'000u);
}

}  // namespace
}  // namespace tern::daemon
