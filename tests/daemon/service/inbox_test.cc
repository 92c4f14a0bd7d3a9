#include "daemon/service/inbox.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace tern::daemon {
namespace {

TEST(InboxTest, GivesAllThingsInTheirOrder) {
  Inbox<int> inbox;
  EXPECT_TRUE(inbox.take_all().empty());
  for (int i = 0; i < 3; ++i) inbox.put(i);
  EXPECT_EQ(inbox.take_all(), (std::deque<int>{0, 1, 2}));
  EXPECT_TRUE(inbox.take_all().empty());
  inbox.put(3);
  EXPECT_EQ(inbox.take_all(), std::deque<int>{3});
}

TEST(InboxTest, ForgetsNoneOfThoseThatAreLeft) {
  const auto thing = std::make_shared<int>(1);
  {
    Inbox<std::shared_ptr<int>> inbox;
    inbox.put(thing);
    inbox.put(thing);
    EXPECT_EQ(thing.use_count(), 3);
  }
  EXPECT_EQ(thing.use_count(), 1);
}

TEST(InboxTest, LosesNothingThatThreadsPutInMeanwhile) {
  constexpr std::size_t kThreads = 4;
  constexpr int kThings = 10'000;  // of each
  Inbox<std::pair<std::size_t, int>> inbox;
  std::vector<std::thread> threads;
  for (std::size_t from = 0; from < kThreads; ++from) {
    threads.emplace_back([&inbox, from] {
      for (int i = 0; i < kThings; ++i) inbox.put({from, i});
    });
  }
  std::array<int, kThreads> next{};
  for (std::size_t taken = 0; taken < kThreads * kThings;) {
    for (const auto& [from, number] : inbox.take_all()) {
      EXPECT_EQ(number, next[from]++);
      ++taken;
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tern::daemon
