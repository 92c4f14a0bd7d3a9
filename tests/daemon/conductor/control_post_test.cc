#include "daemon/conductor/control_post.h"

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class ControlPostTest : public PartRig {};

TEST_F(ControlPostTest, WhatADaemonTellsItselfWaitsInOrder) {
  post_.send(kSelf, {{"t", "first"}});
  post_.send(kSelf, {{"t", "second"}});
  ASSERT_TRUE(post_.has_mail());
  EXPECT_EQ(post_.take()["t"], "first");
  EXPECT_EQ(post_.take()["t"], "second");
  EXPECT_FALSE(post_.has_mail());
}

TEST_F(ControlPostTest, ReachesItselfAndOpenLinksAlone) {
  EXPECT_TRUE(post_.reaches(kSelf));
  const LinkRef link = post_.open({"there", 7000});
  EXPECT_NE(link, kSelf);
  EXPECT_FALSE(post_.reaches(link));
  post_.send(link, {{"t", "join"}});
  EXPECT_FALSE(post_.has_mail());
}

}  // namespace
}  // namespace tern::daemon::conductor_test
