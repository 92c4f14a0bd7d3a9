#include "daemon/lane/fan_out.h"

#include <gtest/gtest.h>

#include <algorithm>

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

  net::QueueBound bound() const { return fan_out.bound(kLinks, 10'000); }

  static constexpr std::size_t kLinks = 7;
  FanOut fan_out;
  std::uint64_t now_ns = 0;
  std::uint64_t acked = 1;
};

TEST_F(FanOutTest, BindsNothingThatItDoesNotKnow) {
  EXPECT_EQ(bound().bytes, 0u);
  carry(12e6, 1);
  EXPECT_EQ(bound().bytes, 0u) << "since when is not known";
  carry(12e6, 1);
  EXPECT_EQ(bound().bytes, FanOut::kSlowBound.bytes);
}

// 100 Mbit/s, 1 Gbit/s, and a path that is as fast as its processors.
TEST_F(FanOutTest, BindsTheLessTheFasterTheLinksAreTogether) {
  carry(12e6, 10);
  EXPECT_EQ(bound().bytes, FanOut::kSlowBound.bytes);
  carry(120e6, 50);
  EXPECT_EQ(bound().bytes, FanOut::kMiddleBound.bytes);
  carry(400e6, 50);
  EXPECT_EQ(bound().bytes, 0u);
  carry(12e6, 50);
  EXPECT_EQ(bound().bytes, FanOut::kSlowBound.bytes);
}

// Little that is sent now and then is no slow path, and a pause does not make a slow one fast.
TEST_F(FanOutTest, LearnsNothingOfLinksThatAreNotBusy) {
  for (int op = 0; op < 20; ++op) {
    carry(5e6, 1);
    carry(0.0, 3, false);
  }
  EXPECT_EQ(bound().bytes, 0u);
  carry(12e6, 10);
  carry(0.0, 500, false);
  EXPECT_EQ(bound().bytes, FanOut::kSlowBound.bytes);
}

TEST_F(FanOutTest, LearnsNothingFromAPauseOrAfterALinkIsGone) {
  carry(400e6, 10);
  now_ns += 20 * FanOut::kLookNs;
  carry(1e6, 1);
  acked = 1;
  carry(1e6, 1);
  EXPECT_EQ(bound().bytes, 0u);
}

// Two nodes at 1 Gbit/s and 2 ms away, and one look that saw little of it. A link with a bound
// carries no more than that in a round trip.
TEST_F(FanOutTest, ABoundThatSlowsTheLinksDoesNotStay) {
  constexpr std::size_t kTwo = 2;
  constexpr std::uint64_t kRoundTripNs = 2'000'000;
  constexpr double kPath = 120e6;
  carry(5e6, 2);
  EXPECT_GT(fan_out.bound(kTwo, kRoundTripNs).bytes, 0u);
  double carried = 0.0;
  for (int look = 0; look < 100; ++look) {
    const auto bytes = static_cast<double>(fan_out.bound(kTwo, kRoundTripNs).bytes);
    carried = bytes == 0.0 ? kPath : std::min(kPath, kTwo * bytes * 1e9 / kRoundTripNs);
    carry(carried, 1);
  }
  EXPECT_EQ(carried, kPath);
}

TEST_F(FanOutTest, LooksNowAndThen) {
  carry(12e6, 2);
  EXPECT_FALSE(fan_out.due(now_ns + FanOut::kLookNs - 1));
  EXPECT_TRUE(fan_out.due(now_ns + FanOut::kLookNs));
  fan_out.look_at_none(now_ns + FanOut::kLookNs);
  EXPECT_FALSE(fan_out.due(now_ns + FanOut::kLookNs + 1));
  EXPECT_EQ(bound().bytes, 0u);
}

}  // namespace
}  // namespace tern::daemon
