#include "daemon/service/sign_of_life.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tern::daemon {
namespace {

TEST(SignOfLife, IsMissingFromTheQuestionToTheAnswer) {
  SignOfLife life;
  EXPECT_TRUE(life.answered()) << "nobody has asked";
  life.ask();
  EXPECT_FALSE(life.answered());
  life.answer();
  EXPECT_TRUE(life.answered());
}

TEST(SignOfLife, OneAnswerIsForAllThatWasAskedBefore) {
  SignOfLife life;
  life.ask();
  life.ask();
  life.answer();
  EXPECT_TRUE(life.answered());
  life.ask();
  EXPECT_FALSE(life.answered()) << "an old answer is none to a new question";
}

TEST(SignOfLife, AnAnswerThatNobodyAskedForIsNone) {
  SignOfLife life;
  life.answer();
  life.ask();
  EXPECT_FALSE(life.answered());
}

TEST(SignOfLife, GoesFromThreadToThread) {
  SignOfLife life;
  std::atomic<bool> stop{false};
  std::thread works([&] {
    while (!stop.load(std::memory_order_acquire)) {
      life.answer();
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 1000; ++i) {
    life.ask();
    while (!life.answered()) std::this_thread::yield();
  }
  stop.store(true, std::memory_order_release);
  works.join();
  life.ask();
  EXPECT_FALSE(life.answered()) << "the thread has ended";
}

}  // namespace
}  // namespace tern::daemon
