#include "daemon/service/user_log.h"

#include <gtest/gtest.h>

#include "tests/daemon/service/log_lines.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kUserLogSecond = 1'000'000'000;

TEST(UserLog, WritesALifeOfAFewLinesASecondWhole) {
  const LogLines lines;
  ManualClock clock;
  UserLog log(clock);
  for (int second = 0; second < 60; ++second) {
    for (int i = 0; i < 3; ++i) log.write({LogTopic::groups, 1001}, "a group");
    log.tell_left_out();
    clock.advance_ns(kUserLogSecond);
  }
  EXPECT_EQ(lines.seen().size(), 180u);
}

TEST(UserLog, SaysHowManyLinesOfWhomWereLeftOut) {
  const LogLines lines;
  ManualClock clock;
  UserLog log(clock);
  for (int i = 0; i < 1'000; ++i) log.write({LogTopic::ops, 1001}, "op {} failed", i);
  ASSERT_EQ(lines.seen().size(), 128u);
  log.write({LogTopic::groups, 1001}, "another topic");
  log.write({LogTopic::ops, 1002}, "another user");
  ASSERT_EQ(lines.seen().size(), 130u);
  log.tell_left_out();
  log.tell_left_out();  // a second has not passed
  ASSERT_EQ(lines.seen().size(), 131u);
  EXPECT_EQ(lines.seen().back(),
            "872 more lines about operations that failed were left out: uid 1001");
}

TEST(UserLog, CountsUsersBeyondTheMostTogether) {
  const LogLines lines;
  ManualClock clock;
  UserLog log(clock);
  for (std::uint32_t user = 0; user < 300; ++user) log.write({LogTopic::states, user}, "reset");
  log.tell_left_out();
  EXPECT_EQ(lines.seen().back(),
            "44 more lines about codec states that were reset were left out: other users");
}

}  // namespace
}  // namespace tern::daemon
