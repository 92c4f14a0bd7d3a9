#include "collective/departures.h"

#include <gtest/gtest.h>

#include <string>

namespace tern::collective {
namespace {

TEST(Departures, ARankThatHasLeftIsNotWaitedFor) {
  Departures departures;
  EXPECT_TRUE(departures.others_may_come(0b011, 3));
  departures.leave(2);
  EXPECT_EQ(departures.left(), 0b100u);
  EXPECT_FALSE(departures.others_may_come(0b011, 3));
  EXPECT_TRUE(departures.others_may_come(0b001, 3));
}

TEST(Departures, SixtyFourRanksMayCome) {
  Departures departures;
  EXPECT_TRUE(departures.others_may_come(~std::uint64_t{0} >> 1, 64));
  departures.leave(63);
  EXPECT_FALSE(departures.others_may_come(~std::uint64_t{0} >> 1, 64));
}

TEST(Departures, TheFirstEndCounts) {
  Departures departures;
  EXPECT_FALSE(departures.ended());
  EXPECT_TRUE(departures.end(Errc::peer_lost, "lost node 3"));
  EXPECT_FALSE(departures.end(Errc::group_left, "another"));
  EXPECT_TRUE(departures.ended());
  EXPECT_EQ(departures.code(), Errc::peer_lost);
  EXPECT_EQ(departures.text(), "lost node 3");
}

TEST(Departures, ALongTextIsCutAndEnds) {
  Departures departures;
  departures.end(Errc::internal, std::string(1000, 'x'));
  EXPECT_EQ(departures.text(), std::string(183, 'x'));
}

TEST(Departures, TheTextNamesTheRank) {
  EXPECT_STREQ(left_text(12).data(), "rank 12 has left the group");
}

}  // namespace
}  // namespace tern::collective
