#include "daemon/lane/fan_out.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

class FanOutTest : public ::testing::Test {
 protected:
  void carry(double bytes_per_s, int looks, bool busy = true) {
    for (; looks > 0; --looks) {
      now_ns += FanOut::kLookNs;
      acked += static_cast<std::uint64_t>(bytes_per_s * FanOut::kLookNs / 1e9);
      fan_out.look(acked, busy, now_ns);
    }
  }

  FanOut fan_out;
  std::uint64_t now_ns = 0;
  std::uint64_t acked = 1;
};

TEST_F(FanOutTest, BindsNothingThatItDoesNotKnow) {
  EXPECT_EQ(fan_out.bound().bytes, 0u);
  carry(12e6, 1);
  EXPECT_EQ(fan_out.bound().bytes, 0u) << "since when is not known";
  carry(12e6, 1);
  EXPECT_EQ(fan_out.bound().bytes, FanOut::kSlowBound.bytes);
}

// 100 Mbit/s, 1 Gbit/s, and a path that is as fast as its processors.
TEST_F(FanOutTest, BindsTheLessTheFasterTheLinksAreTogether) {
  carry(12e6, 10);
  EXPECT_EQ(fan_out.bound().bytes, FanOut::kSlowBound.bytes);
  carry(120e6, 50);
  EXPECT_EQ(fan_out.bound().bytes, FanOut::kMiddleBound.bytes);
  carry(400e6, 50);
  EXPECT_EQ(fan_out.bound().bytes, 0u);
  carry(12e6, 50);
  EXPECT_EQ(fan_out.bound().bytes, FanOut::kSlowBound.bytes);
}

// Little that is sent now and then is no slow path, and a pause does not make a slow one fast.
TEST_F(FanOutTest, LearnsNothingOfLinksThatAreNotBusy) {
  for (int op = 0; op < 20; ++op) {
    carry(5e6, 1);
    carry(0.0, 3, false);
  }
  EXPECT_EQ(fan_out.bound().bytes, 0u);
  carry(12e6, 10);
  carry(0.0, 500, false);
  EXPECT_EQ(fan_out.bound().bytes, FanOut::kSlowBound.bytes);
}

TEST_F(FanOutTest, LearnsNothingFromAPauseOrAfterALinkIsGone) {
  carry(400e6, 10);
  now_ns += 20 * FanOut::kLookNs;
  carry(1e6, 1);
  acked = 1;
  carry(1e6, 1);
  EXPECT_EQ(fan_out.bound().bytes, 0u);
}

TEST_F(FanOutTest, LooksNowAndThen) {
  carry(12e6, 2);
  EXPECT_FALSE(fan_out.due(now_ns + FanOut::kLookNs - 1));
  EXPECT_TRUE(fan_out.due(now_ns + FanOut::kLookNs));
  fan_out.look_at_none(now_ns + FanOut::kLookNs);
  EXPECT_FALSE(fan_out.due(now_ns + FanOut::kLookNs + 1));
  EXPECT_EQ(fan_out.bound().bytes, 0u);
}

}  // namespace
}  // namespace tern::daemon
