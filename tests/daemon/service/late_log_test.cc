#include "daemon/service/late_log.h"

#include <gtest/gtest.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "daemon/service/log.h"

namespace tern::daemon {
namespace late_log_test {
namespace {

using std::chrono::milliseconds;

// What another thread writes to: as slow as the test likes.
class Slow final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  void let(bool through) {
    const std::lock_guard lock(mutex_);
    is_open_ = through;
    changed_.notify_all();
  }
  // Waits until a line is being written.
  void wait_for_a_line() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_writing_; });
  }
  std::vector<std::string> written() const {
    const std::lock_guard lock(mutex_);
    return written_;
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const LogFields& fields = current_log_fields();
    std::string line(message.payload.data(), message.payload.size());
    if (!fields.job.empty()) line += "|" + std::string(fields.job);
    std::unique_lock lock(mutex_);
    is_writing_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
    is_writing_ = false;
    written_.push_back(line);
    if (line == "a line that cannot be written") throw std::runtime_error("no room");
  }
  void flush_() override {}

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
  bool is_writing_ = false;
  std::vector<std::string> written_;
};

class LateLogTest : public testing::Test {
 protected:
  static constexpr milliseconds kLong{600'000};

  void log(LateLog& late, const std::string& text) {
    late.log(spdlog::details::log_msg("test", spdlog::level::info, text));
  }
  std::shared_ptr<Slow> slow = std::make_shared<Slow>();
};

TEST_F(LateLogTest, WritesAllLinesInOrderWithTheirFields) {
  LateLog late(slow);
  {
    const std::string job = "resnet";
    const LogScope scope({.job = job});
    log(late, "one");
  }
  log(late, "two");
  EXPECT_TRUE(late.settle(kLong));
  EXPECT_EQ(slow->written(), (std::vector<std::string>{"one|resnet", "two"}));
}

TEST_F(LateLogTest, WhoLogsWaitsForNobody) {
  slow->let(false);
  LateLog late(slow);
  log(late, "one");
  slow->wait_for_a_line();
  for (int i = 0; i < 100; ++i) log(late, "more");
  EXPECT_TRUE(slow->written().empty());
  slow->let(true);
  ASSERT_TRUE(late.settle(kLong));
  EXPECT_EQ(slow->written().size(), 101u);
}

TEST_F(LateLogTest, WhatDoesNotFitIsCountedWhereItIsMissing) {
  slow->let(false);
  LateLog late(slow);
  log(late, "being written");
  slow->wait_for_a_line();
  const std::string large(LateLog::kMostWaiting / 3, 'x');
  log(late, large);
  log(late, large);
  for (int i = 0; i < 7; ++i) log(late, large);
  slow->let(true);
  ASSERT_TRUE(late.settle(kLong));
  EXPECT_EQ(slow->written(),
            (std::vector<std::string>{"being written", large, large,
                                      "7 lines missing here: what takes the log is too slow"}));
  log(late, "there is room again");
  ASSERT_TRUE(late.settle(kLong));
  EXPECT_EQ(slow->written().back(), "there is room again");
}

TEST_F(LateLogTest, ALineThatFitsComesAfterTheCountOfThoseThatDidNot) {
  slow->let(false);
  LateLog late(slow);
  log(late, "being written");
  slow->wait_for_a_line();
  log(late, std::string(2 * LateLog::kMostWaiting, 'x'));
  log(late, "short");
  slow->let(true);
  ASSERT_TRUE(late.settle(kLong));
  EXPECT_EQ(slow->written(),
            (std::vector<std::string>{
                "being written", "1 line missing here: what takes the log is too slow", "short"}));
}

TEST_F(LateLogTest, ASinkThatThrowsLosesItsLineAlone) {
  LateLog late(slow);
  log(late, "a line that cannot be written");
  log(late, "the next");
  ASSERT_TRUE(late.settle(kLong));
  EXPECT_EQ(slow->written().back(), "the next");
}

TEST_F(LateLogTest, ALineThatIsTooLongForAnyRoomIsCountedAtOnce) {
  LateLog late(slow);
  log(late, std::string(2 * LateLog::kMostWaiting, 'x'));
  ASSERT_TRUE(late.settle(kLong));
  EXPECT_EQ(slow->written(),
            std::vector<std::string>{"1 line missing here: what takes the log is too slow"});
}

TEST_F(LateLogTest, NobodyWaitsLongerThanPatienceForASinkThatTakesNothing) {
  slow->let(false);
  {
    LateLog late(slow);
    log(late, "one");
    slow->wait_for_a_line();
    EXPECT_FALSE(late.settle(milliseconds(1)));
  }
  slow->let(true);
  while (slow->written().empty()) std::this_thread::yield();
  EXPECT_EQ(slow->written(), std::vector<std::string>{"one"}) << "the thread goes on alone";
}

}  // namespace
}  // namespace late_log_test
}  // namespace tern::daemon
