#include "daemon/service/journal_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace tern::daemon {
namespace {

using ::testing::ElementsAre;

TEST(JournalSink, WritesSeverityTextAndTheFieldsThatAreSet) {
  EXPECT_THAT(journal_entry(spdlog::level::warn, "op failed",
                            {.job = "resnet", .group = "1f2e3d4c", .peer = "", .tensor = "a=b"}),
              ElementsAre("MESSAGE=op failed", "PRIORITY=4", "SYSLOG_IDENTIFIER=ternd",
                          "TERN_JOB=resnet", "TERN_GROUP=1f2e3d4c", "TERN_TENSOR=a=b"));
  EXPECT_THAT(journal_entry(spdlog::level::err, "", {}),
              ElementsAre("MESSAGE=", "PRIORITY=3", "SYSLOG_IDENTIFIER=ternd"));
}

TEST(JournalSink, NoValueMakesALineOfItsOwn) {
  EXPECT_THAT(journal_entry(spdlog::level::info, "job a\nternd[1]: b", {.job = "a\nMESSAGE=b"}),
              ElementsAre("MESSAGE=job a\\x0aternd[1]: b", "PRIORITY=6", "SYSLOG_IDENTIFIER=ternd",
                          "TERN_JOB=a\\x0aMESSAGE=b"));
}

TEST(JournalSink, IsForAStderrThatLeadsToTheJournal) {
  ::unsetenv("JOURNAL_STREAM");
  EXPECT_FALSE(stderr_is_journal());
  struct stat info {};
  ASSERT_EQ(::fstat(STDERR_FILENO, &info), 0);
  const std::string here = std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
  ::setenv("JOURNAL_STREAM", here.c_str(), 1);
  EXPECT_TRUE(stderr_is_journal());
  // Inherited from a service, with stderr redirected since.
  ::setenv("JOURNAL_STREAM", (here + "1").c_str(), 1);
  EXPECT_FALSE(stderr_is_journal());
  ::setenv("JOURNAL_STREAM", "nonsense", 1);
  EXPECT_FALSE(stderr_is_journal());
  ::unsetenv("JOURNAL_STREAM");
}

}  // namespace
}  // namespace tern::daemon
