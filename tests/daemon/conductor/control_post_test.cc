#include "daemon/conductor/control_post.h"

#include <algorithm>
#include <vector>

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

// The clock of a test stands still: a slice is over at once, or never.
TEST_F(ControlPostTest, DeliversWhatThereIsTimeFor) {
  for (int i = 0; i < 300; ++i) post_.send(kSelf, {{"number", i}});
  std::vector<int> heard;
  const auto hear = [&](const nlohmann::json& message) {
    heard.push_back(message["number"].get<int>());
    if (heard.size() == 1) post_.send(kSelf, {{"number", 300}});  // as an answer is
  };
  EXPECT_EQ(post_.deliver(TimeSlice(clock_, 0), hear), 1);
  EXPECT_EQ(post_.deliver(TimeSlice(clock_, 0), hear), 1);
  EXPECT_EQ(post_.deliver(TimeSlice(clock_, kSecond), hear), 256) << "and no more at once";
  EXPECT_EQ(post_.deliver(TimeSlice(clock_, kSecond), hear), 43);
  EXPECT_EQ(post_.deliver(TimeSlice(clock_, kSecond), hear), 0);
  ASSERT_EQ(heard.size(), 301u);
  EXPECT_TRUE(std::is_sorted(heard.begin(), heard.end()));
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
