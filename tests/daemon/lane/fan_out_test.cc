#include "daemon/lane/fan_out.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tern::daemon {
namespace {

class FanOutTest : public ::testing::Test {
 protected:
  // For so many looks the links are busy for this share of the time, and together carry this while
  // they are.
  void carry(double bytes_per_s, int looks, double share = 1.0) {
    for (; looks > 0; --looks) {
      const double busy_ns = share * FanOut::kLookNs;
      FanOut::Carried carried;
      for (std::size_t link = 0; link < kLinks; ++link) {
        carried.add(static_cast<std::uint64_t>(bytes_per_s * busy_ns / 1e9 / kLinks),
                    static_cast<std::uint64_t>(busy_ns));
      }
      look(carried);
    }
  }
  bool look(const FanOut::Carried& carried) {
    now_ns += FanOut::kLookNs;
    return fan_out.look(carried, now_ns);
  }

  net::QueueBound bound() const { return fan_out.bound(kLinks, 10'000); }

  static constexpr std::size_t kLinks = 7;
  static constexpr std::size_t kPort = 256 << 10;
  // Six pairs of segments: seven nodes that have this and one more piece each fill no port.
  static constexpr net::QueueBound kMiddle{17'376, 17'376};
  FanOut fan_out{kPort};
  std::uint64_t now_ns = 0;
};

TEST_F(FanOutTest, TakesForMiddlingWhatItDoesNotKnow) {
  EXPECT_EQ(bound().bytes, kMiddle.bytes);
  EXPECT_TRUE(look({}));
  EXPECT_EQ(bound().bytes, kMiddle.bytes);
  carry(12e6, 1);
  EXPECT_EQ(bound().bytes, FanOut::kSlowBound.bytes);
}

// Pieces cost, and a port that holds much, or whose size nobody knows, needs no small ones.
TEST_F(FanOutTest, WithoutKnownPortsPiecesDoNotDependOnTheNumberOfLinks) {
  fan_out = FanOut();
  EXPECT_EQ(bound().bytes, 0u) << "nothing is known";
  carry(120e6, 50);
  for (const std::size_t links : {2u, 7u, 63u}) {
    EXPECT_EQ(fan_out.bound(links, 0).bytes, FanOut::kMiddleBound.bytes);
    EXPECT_EQ(fan_out.bound(links, 0).record_bytes, FanOut::kMiddleBound.record_bytes);
  }
  fan_out.look_at_none(now_ns);
  EXPECT_FALSE(fan_out.knows_ports());
}

// 100 Mbit/s, 1 Gbit/s, and a path that is as fast as its processors.
TEST_F(FanOutTest, BindsTheLessTheFasterTheLinksAreTogether) {
  carry(12e6, 10);
  EXPECT_EQ(bound().bytes, FanOut::kSlowBound.bytes);
  carry(120e6, 50);
  EXPECT_EQ(bound().bytes, kMiddle.bytes);
  EXPECT_EQ(bound().record_bytes, kMiddle.record_bytes);
  carry(400e6, 50);
  EXPECT_EQ(bound().bytes, 0u);
  carry(12e6, 50);
  EXPECT_EQ(bound().bytes, FanOut::kSlowBound.bytes);
}

// Ops with pauses between them are no slow path, and a pause does not make a slow one fast.
TEST_F(FanOutTest, CountsOnlyTheTimeInWhichLinksAreBusy) {
  carry(400e6, 50, 0.1);
  EXPECT_EQ(bound().bytes, 0u);
  carry(12e6, 50, 0.5);
  EXPECT_EQ(bound().bytes, FanOut::kSlowBound.bytes);
  carry(0.0, 500, 0.0);
  EXPECT_EQ(bound().bytes, FanOut::kSlowBound.bytes);
}

// At the end of an op a few links are busy for a moment, each at the rate of the whole path.
TEST_F(FanOutTest, MomentsCountForLittle) {
  for (int op = 0; op < 50; ++op) {
    carry(120e6, 5);
    carry(500e6, 1, 0.05);
    EXPECT_EQ(bound().bytes, kMiddle.bytes) << op;
  }
}

// The others were waiting for something else.
TEST_F(FanOutTest, ALinkThatCarriesLittleSaysLittleOfThePath) {
  for (int i = 0; i < 50; ++i) {
    FanOut::Carried carried;
    carried.add(2'400'000, 20'000'000);
    for (std::size_t link = 1; link < kLinks; ++link) carried.add(100, 1'000'000);
    EXPECT_TRUE(look(carried));
  }
  EXPECT_EQ(bound().bytes, kMiddle.bytes) << "120 MB/s";
}

// An idle link has a frame now and then, whose acknowledgement is put off.
TEST_F(FanOutTest, AFrameNowAndThenSaysNothing) {
  carry(400e6, 50);
  FanOut::Carried carried;
  carried.add(4000, 40'000'000);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(look(carried));
  EXPECT_EQ(bound().bytes, 0u);
}

TEST_F(FanOutTest, WaitsForTimeToBeCounted) {
  FanOut::Carried carried;
  carried.add(1 << 20, 0);
  EXPECT_FALSE(look(carried));
  EXPECT_EQ(bound().bytes, kMiddle.bytes);
  carried.add(1 << 20, 4'000'000);
  EXPECT_TRUE(look(carried));
  EXPECT_EQ(bound().bytes, 0u);
}

// What a long pause between looks has gathered is forgotten as soon as the rest.
TEST_F(FanOutTest, ALongLookIsNotRememberedForLonger) {
  FanOut::Carried carried;
  carried.add(12'000'000 * 60ull, 60'000'000'000);
  EXPECT_TRUE(look(carried));
  EXPECT_EQ(bound().bytes, FanOut::kSlowBound.bytes);
  carry(400e6, 20);
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
  EXPECT_EQ(bound().bytes, kMiddle.bytes) << "what it had seen is forgotten";
  EXPECT_EQ(fan_out.bound(0, 10'000).bytes, 0u);
}

// What all of them have on the way to one node fits a port, down to two pairs of segments of each.
TEST_F(FanOutTest, BindsTheMoreTheMoreLinksThereAre) {
  carry(120e6, 50);
  EXPECT_EQ(fan_out.bound(2, 0).bytes, FanOut::kMiddleBound.bytes);
  std::size_t last = FanOut::kMiddleBound.record_bytes;
  for (const std::size_t links : {3u, 7u, 9u, 15u, 22u}) {
    const net::QueueBound one = fan_out.bound(links, 0);
    EXPECT_LE(one.record_bytes, last);
    EXPECT_EQ(one.record_bytes % FanOut::kLeastPiece, 0u);
    EXPECT_LE(links * (one.bytes + one.record_bytes), kPort);
    last = one.record_bytes;
  }
  for (const std::size_t links : {31u, 63u}) {
    EXPECT_EQ(fan_out.bound(links, 0).bytes, FanOut::kLeastPiece);
    EXPECT_EQ(fan_out.bound(links, 0).record_bytes, FanOut::kLeastPiece);
  }
}

}  // namespace
}  // namespace tern::daemon
