#include "daemon/membership/lost_links.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/clock.h"

namespace tern::daemon::lost_links_test {
namespace {

constexpr LinkRef kLink = 7, kOther = 8;

class LostLinksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* const uid : {"a", "b", "c"}) groups_.add_own(uid);
  }
  // The clock of a test stands still: a slice is over at once, or never.
  std::string tell_one() { return tell(TimeSlice(clock_, 0)); }
  std::string tell_all() { return tell(TimeSlice(clock_, 1)); }
  // Who has heard.
  std::string tell(const TimeSlice& slice) {
    std::string heard;
    links_.tell(groups_, slice, [&](const std::string& uid, CoordinatedGroup&) {
      heard += uid;
      if (uid == forgotten_) groups_.forget(uid);
    });
    return heard;
  }

  ManualClock clock_;
  CoordinatedGroups groups_;
  LostLinks links_;
  std::string forgotten_;
};

TEST_F(LostLinksTest, EachGroupHearsOnceOfAllThatAreLost) {
  EXPECT_TRUE(links_.empty());
  EXPECT_EQ(tell_all(), "");
  links_.add(kLink, "broken");
  links_.add(kOther, "gone");
  EXPECT_FALSE(links_.empty());
  EXPECT_EQ(tell_all(), "abc");
  EXPECT_TRUE(links_.empty());
  EXPECT_EQ(tell_all(), "");
}

TEST_F(LostLinksTest, IsKnownToBeLostUntilAllHaveHeard) {
  EXPECT_EQ(links_.why(kLink), nullptr);
  links_.add(kLink, "broken");
  for (const char* const uid : {"a", "b"}) {
    EXPECT_EQ(tell_one(), uid);
    ASSERT_NE(links_.why(kLink), nullptr);
    EXPECT_EQ(*links_.why(kLink), "broken");
    EXPECT_EQ(links_.why(kOther), nullptr);
  }
  EXPECT_EQ(tell_one(), "c");
  EXPECT_EQ(links_.why(kLink), nullptr);
}

TEST_F(LostLinksTest, OneThatIsLostMeanwhileIsToldOfAfterwards) {
  links_.add(kLink, "broken");
  EXPECT_EQ(tell_one(), "a");
  links_.add(kOther, "gone");
  EXPECT_NE(links_.why(kOther), nullptr);
  EXPECT_EQ(tell_all(), "bc");
  EXPECT_EQ(links_.why(kLink), nullptr);
  EXPECT_FALSE(links_.empty());
  EXPECT_EQ(tell_all(), "abc");
  EXPECT_TRUE(links_.empty());
}

TEST_F(LostLinksTest, GroupsMayComeAndGoMeanwhile) {
  links_.add(kLink, "broken");
  forgotten_ = "a";
  EXPECT_EQ(tell_one(), "a");
  EXPECT_EQ(groups_.size(), 2u);
  groups_.forget("b");  // the next one
  groups_.add_own("bb");
  EXPECT_EQ(tell_all(), "bbc");
  EXPECT_TRUE(links_.empty());
}

TEST_F(LostLinksTest, WithoutAGroupNobodyIsTold) {
  for (const char* const uid : {"a", "b", "c"}) groups_.forget(uid);
  links_.add(kLink, "broken");
  EXPECT_EQ(tell_one(), "");
  EXPECT_TRUE(links_.empty());
}

}  // namespace
}  // namespace tern::daemon::lost_links_test
