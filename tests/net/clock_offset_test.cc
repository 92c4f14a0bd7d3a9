#include "net/clock_offset.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tern::net {
namespace {

constexpr std::uint64_t kMs = 1'000'000, kSecond = 1'000'000'000;

TEST(ClockOffset, IsUnknownUntilAFrameWasSentAndAnswered) {
  ClockOffset offset;
  EXPECT_FALSE(offset.estimate().known);
  offset.note(0, 500 * kSecond, 100 * kSecond);  // an acknowledgement of nothing new
  EXPECT_FALSE(offset.estimate().known);
  offset.note(100 * kSecond, 500 * kSecond, 100 * kSecond + 2 * kMs);
  EXPECT_TRUE(offset.estimate().known);
}

TEST(ClockOffset, LiesBetweenSendingAndHearing) {
  ClockOffset offset;
  // The peer is 400 s ahead; one millisecond each way.
  offset.note(100 * kSecond, 500 * kSecond + kMs, 100 * kSecond + 2 * kMs);
  EXPECT_EQ(offset.estimate().ns, static_cast<std::int64_t>(400 * kSecond));
  EXPECT_EQ(offset.estimate().error_ns, kMs);
}

TEST(ClockOffset, IsNarrowedByEveryAnswerAndStaysTrue) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::int64_t truth = -7 * static_cast<std::int64_t>(kSecond);
  ClockOffset offset;
  std::uint64_t now = 100 * kSecond, error = kSecond;
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t there = 50'000 + random() % kMs, held = random() % kMs,
                        back = 50'000 + random() % kMs;
    const std::uint64_t sent = now, written = sent + there + held;
    now = written + back;
    offset.note(sent, written + static_cast<std::uint64_t>(truth), now);
    const auto seen = offset.estimate();
    ASSERT_TRUE(seen.known);
    ASSERT_LE(seen.error_ns, error + (now - sent) / 1000);
    ASSERT_LE(static_cast<std::uint64_t>(std::abs(seen.ns - truth)), seen.error_ns + 1);
    error = seen.error_ns;
  }
  EXPECT_LT(error, 300'000u);
}

TEST(ClockOffset, FollowsAClockThatDrifts) {
  ClockOffset offset;
  // 100 parts in a million, for five minutes: 30 ms.
  std::uint64_t now = 1000 * kSecond;
  for (int i = 0; i < 300; ++i, now += kSecond) {
    const std::uint64_t drift = static_cast<std::uint64_t>(i) * 100'000;
    offset.note(now, now + 50'000 + drift, now + 100'000);
  }
  const auto seen = offset.estimate();
  ASSERT_TRUE(seen.known);
  EXPECT_NEAR(static_cast<double>(seen.ns), 299.0 * 100'000, static_cast<double>(seen.error_ns));
  EXPECT_LT(seen.error_ns, 400'000u);
}

TEST(ClockOffset, IsLessSureWhileNobodyAcknowledges) {
  ClockOffset offset;
  offset.widen(99 * kSecond);
  EXPECT_FALSE(offset.estimate().known);
  offset.note(100 * kSecond, 500 * kSecond + kMs, 100 * kSecond + 2 * kMs);
  offset.widen(100 * kSecond + 2 * kMs + 50 * kSecond);
  EXPECT_EQ(offset.estimate().ns, static_cast<std::int64_t>(400 * kSecond));
  EXPECT_EQ(offset.estimate().error_ns, kMs + 10 * kMs);
}

TEST(ClockOffset, BeginsAnewWhenAClockWasSet) {
  ClockOffset offset;
  offset.note(100 * kSecond, 500 * kSecond + kMs, 100 * kSecond + 2 * kMs);
  offset.note(101 * kSecond, 101 * kSecond + kMs, 101 * kSecond + 2 * kMs);
  EXPECT_EQ(offset.estimate().ns, 0);
  EXPECT_EQ(offset.estimate().error_ns, kMs);
}

TEST(ClockOffset, SurvivesAPeerThatSaysAnything) {
  ClockOffset offset;
  for (const std::uint64_t written :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    offset.note(5 * kSecond, written, 6 * kSecond);
    const auto seen = offset.estimate();
    EXPECT_LE(seen.error_ns, std::uint64_t{1} << 63) << written;
  }
}

}  // namespace
}  // namespace tern::net
