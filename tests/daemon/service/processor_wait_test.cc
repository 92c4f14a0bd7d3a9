#include "daemon/service/processor_wait.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace tern::daemon {
namespace {

class ProcessorWaitTest : public ::testing::Test {
 protected:
  ~ProcessorWaitTest() override { std::filesystem::remove(path_); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

  const std::string path_ = ::testing::TempDir() + "processor_wait_" + std::to_string(::getpid());
};

TEST_F(ProcessorWaitTest, IsTheSecondNumberThatTheFileHasNow) {
  write("123456 7890 42\n");
  ProcessorWait wait(path_);
  EXPECT_EQ(wait.times().waited_ns, 7890u);
  write("223456 18446744073709551615 43\n");
  EXPECT_EQ(wait.times().waited_ns, 18446744073709551615u);
}

TEST_F(ProcessorWaitTest, IsNothingWhereTheKernelDoesNotSay) {
  EXPECT_EQ(ProcessorWait(path_).times().waited_ns, 0u);
  for (const char* text : {"", "5", "5 ", "x y z"}) {
    write(text);
    EXPECT_EQ(ProcessorWait(path_).times().waited_ns, 0u) << text;
  }
}

TEST(ProcessorWait, OfThisThreadOnlyGrows) {
  ProcessorWait wait;
  const std::uint64_t first = wait.times().waited_ns;
  EXPECT_GE(wait.times().waited_ns, first);
}

TEST(ProcessorWait, KnowsWhatThisThreadRanAndThatItSlept) {
  ProcessorWait wait;
  const ProcessorWait::Times first = wait.times();
  ProcessorWait::Times now = first;
  while (now.run_ns < first.run_ns + 1000) now = wait.times();
  // Who waits for the end of a thread sleeps, if it has not ended yet.
  while (now.sleeps == first.sleeps) {
    std::thread([] {}).join();
    now = wait.times();
  }
  EXPECT_GE(wait.sleeps(), now.sleeps);
}

}  // namespace
}  // namespace tern::daemon
