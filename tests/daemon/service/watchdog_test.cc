#include "daemon/service/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tern::daemon {
namespace {

constexpr std::uint64_t kTimeout = 8'000;

struct Lanes {
  std::vector<SignOfLife> signs = std::vector<SignOfLife>(2);
  std::vector<int> wakes = {0, 0};
  Watchdog watchdog{kTimeout, {&signs[0], &signs[1]}, [this](std::size_t lane) { ++wakes[lane]; }};

  void answer_all() {
    for (auto& sign : signs) sign.answer();
  }
};

TEST(Watchdog, IsFedOnceAllLanesHaveAnsweredAndNotBefore) {
  Lanes lanes;
  EXPECT_FALSE(lanes.watchdog.tick(100));
  EXPECT_EQ(lanes.wakes, (std::vector{1, 1}));  // a sleeping lane must wake to answer
  lanes.signs[0].answer();
  EXPECT_FALSE(lanes.watchdog.tick(lanes.watchdog.next_deadline_ns()));
  lanes.signs[1].answer();
  EXPECT_TRUE(lanes.watchdog.tick(lanes.watchdog.next_deadline_ns()));
  EXPECT_EQ(lanes.wakes, (std::vector{1, 1}));
}

TEST(Watchdog, SeesAnAnswerWheneverItsThreadIsAwake) {
  Lanes lanes;
  lanes.watchdog.tick(100);
  lanes.answer_all();
  ASSERT_LT(101u, lanes.watchdog.next_deadline_ns());
  EXPECT_TRUE(lanes.watchdog.tick(101));
}

TEST(Watchdog, AsksAgainEveryQuarterOfTheTimeoutOrABitBeforeIfItsThreadIsAwake) {
  Lanes lanes;
  constexpr std::uint64_t kRound = kTimeout / 4;
  lanes.watchdog.tick(100);
  lanes.answer_all();
  ASSERT_TRUE(lanes.watchdog.tick(lanes.watchdog.next_deadline_ns()));
  EXPECT_EQ(lanes.watchdog.next_deadline_ns(), 100 + kRound);
  EXPECT_FALSE(lanes.watchdog.tick(99 + kRound * 3 / 4));
  EXPECT_EQ(lanes.wakes, (std::vector{1, 1}));
  // An old answer does not count for a new question.
  EXPECT_FALSE(lanes.watchdog.tick(100 + kRound * 3 / 4));
  EXPECT_EQ(lanes.wakes, (std::vector{2, 2}));
}

TEST(Watchdog, IsNeverFedWhileALaneHangs) {
  Lanes lanes;
  for (std::uint64_t now = 0; now < 10 * kTimeout; now = lanes.watchdog.next_deadline_ns()) {
    ASSERT_FALSE(lanes.watchdog.tick(now)) << now;
    lanes.signs[0].answer();
    ASSERT_GT(lanes.watchdog.next_deadline_ns(), now);
  }
}

TEST(Watchdog, NamesTheLanesThatAreSilentForHalfOfTheTimeout) {
  Lanes lanes;
  lanes.watchdog.tick(0);
  lanes.signs[0].answer();
  EXPECT_TRUE(lanes.watchdog.silent(kTimeout / 2).empty());
  EXPECT_EQ(lanes.watchdog.silent(kTimeout / 2 + 1), std::vector<std::size_t>{1});
  lanes.signs[1].answer();
  EXPECT_TRUE(lanes.watchdog.silent(kTimeout).empty());
}

TEST(SignOfLife, PassesBetweenThreads) {
  SignOfLife sign;
  std::atomic<bool> stop{false};
  std::thread lane([&] {
    while (!stop.load(std::memory_order_relaxed)) sign.answer();
  });
  for (int round = 0; round < 100; ++round) {
    sign.ask();
    while (!sign.answered()) std::this_thread::yield();
  }
  stop = true;
  lane.join();
  sign.ask();
  EXPECT_FALSE(sign.answered());
}

}  // namespace
}  // namespace tern::daemon
