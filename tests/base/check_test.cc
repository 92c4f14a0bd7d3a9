#include "base/check.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <thread>

namespace tern {
namespace {

void fail_a_check() { TERN_CHECK(1 + 1 == 3); }

TEST(CheckDeathTest, SaysWhatIsBrokenAndEndsTheProcess) {
  EXPECT_EXIT(fail_a_check(), testing::KilledBySignal(SIGABRT),
              "check_test.cc:[0-9]+: broken invariant: 1 \\+ 1 == 3");
}

// A pipe without room, and a thread that has the lock of the stream for ever.
void fail_a_check_where_nobody_takes_stderr() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_NONBLOCK) != 0) return;
  while (::write(ends[1], "x", 1) == 1) {
  }
  ::fcntl(ends[1], F_SETFL, 0);
  ::dup2(ends[1], STDERR_FILENO);
  std::thread([] { ::flockfile(stderr); }).join();
  fail_a_check();
}

TEST(CheckDeathTest, EndsTheProcessThoughNobodyTakesStderr) {
  EXPECT_EXIT(fail_a_check_where_nobody_takes_stderr(), testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace tern
