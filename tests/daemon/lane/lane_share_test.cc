#include "daemon/lane/lane_share.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace lane_share_test {

constexpr std::uint64_t kNow = 100'000'000'000;
constexpr auto kLeast = static_cast<std::size_t>(LaneShare::kLeastBytes);

// 100 MB/s over links of 0.1 ms.
LaneShare share_of_a_full_lane() {
  LaneShare share;
  for (std::uint64_t look = 0; look < 20; ++look) {
    share.look(look * 2'000'000, kNow + look * LaneShare::kLookNs);
  }
  return share;
}

TEST(LaneShare, KeepsThePathBusyAndAQuarterOfAMillisecondWaiting) {
  EXPECT_EQ(share_of_a_full_lane().bound({1.0, 1.0, 1.0}, 1, 100'000), 10'000u + 25'000u);
}

TEST(LaneShare, DividesByWeightSoThatTheLightestHasEnough) {
  const LaneShare share = share_of_a_full_lane();
  EXPECT_EQ(share.bound({0.25, 0.25, 1.0}, 1, 0), kLeast);
  EXPECT_EQ(share.bound({0.75, 0.25, 1.0}, 1, 0), 3 * kLeast);
}

TEST(LaneShare, DividesThePathAmongThoseThatFillIt) {
  const LaneShare share = share_of_a_full_lane();
  EXPECT_EQ(share.bound({0.75, 0.25, 1.0}, 1, 1'000'000), 100'000u + 3 * kLeast);
  EXPECT_EQ(share.bound({0.75, 0.25, 0.75}, 1, 1'000'000), 75'000u + 3 * kLeast);
  EXPECT_EQ(share.bound({0.25, 0.25, 0.25}, 1, 1'000'000), 25'000u + kLeast);
}

TEST(LaneShare, ALinkOfManyHasEnoughToo) {
  EXPECT_EQ(share_of_a_full_lane().bound({0.5, 0.5, 1.0}, 15, 100'000), kLeast);
}

TEST(LaneShare, RemembersTheFastestForAWhile) {
  LaneShare share = share_of_a_full_lane();
  const std::size_t full = share.bound({1.0, 1.0, 1.0}, 1, 1'000'000);
  std::uint64_t now = kNow + 19 * LaneShare::kLookNs;
  const auto look_at_nothing = [&](int times) {
    for (int i = 0; i < times; ++i) share.look(38'000'000, now += LaneShare::kLookNs);
  };
  look_at_nothing(1);
  EXPECT_GT(share.bound({1.0, 1.0, 1.0}, 1, 1'000'000), full * 9 / 10);
  look_at_nothing(1000);
  EXPECT_LT(share.bound({1.0, 1.0, 1.0}, 1, 1'000'000), kLeast + 1000);
}

TEST(LaneShare, AJobIsLightWhenItHasHadLittleUnderWayForAWhile) {
  EXPECT_TRUE(LaneShare::is_light(128 << 10));  // two ops of 64 KiB
  EXPECT_FALSE(LaneShare::is_light(256 << 10));
  // Bursts of 4 MiB with 0.4 s between them are a flood all the time.
  std::uint64_t backlog = 0;
  for (int look = 0; look < 200; ++look) {
    backlog = LaneShare::backlog(backlog, look % 21 == 0 ? 4 << 20 : 0);
    EXPECT_FALSE(LaneShare::is_light(backlog)) << look;
  }
  std::uint64_t looks = 0;
  for (; !LaneShare::is_light(backlog); ++looks) backlog = LaneShare::backlog(backlog, 30'000);
  EXPECT_GT(looks * LaneShare::kLookNs, 500'000'000u);
  EXPECT_LT(looks * LaneShare::kLookNs, 2'000'000'000u);
}

TEST(LaneShare, ALumpOfAcksIsNoRate) {
  LaneShare share;
  std::uint64_t acked = 0;
  // 2.5 MB in every fifth look and nothing between: 25 MB/s.
  for (std::uint64_t look = 0; look < 50; ++look) {
    if (look % 5 == 4) acked += 2'500'000;
    share.look(acked, kNow + look * LaneShare::kLookNs);
  }
  EXPECT_EQ(share.bound({1.0, 1.0, 1.0}, 1, 10'000'000), 250'000u + kLeast);
}

TEST(LaneShare, APauseIsNoRate) {
  LaneShare share;
  share.look(0, kNow);
  share.look(1'000'000'000, kNow + 1'000'000'000);
  EXPECT_EQ(share.bound({1.0, 1.0, 1.0}, 1, 100'000), kLeast);
}

}  // namespace lane_share_test
}  // namespace tern::daemon
