#include "daemon/service/processor_wait.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tern::daemon {
namespace {

class ProcessorWaitTest : public ::testing::Test {
 protected:
  ~ProcessorWaitTest() override { std::filesystem::remove(path_); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

  const std::string path_ = ::testing::TempDir() + "processor_wait_" + std::to_string(::getpid());
};

TEST_F(ProcessorWaitTest, IsTheFirstTwoNumbersThatTheFileHasNow) {
  write("123456 7890 42\n");
  ProcessorWait wait(path_);
  EXPECT_EQ(wait.times().run_ns, 123456u);
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

}  // namespace
}  // namespace tern::daemon
