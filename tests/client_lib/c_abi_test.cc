#include "tests/client_lib/c_abi.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/client_lib/fake_daemon.h"

namespace tern::testing {
namespace {

TEST(CAbi, EveryFunctionWorksFromC) {
  FakeDaemon daemon({.devices = true});
  EXPECT_EQ(tern_c_abi_run(daemon.path().c_str()), 0) << "the line of c_abi.c that failed";
}

TEST(FirstProgram, RunsAsItsPageSays) {
  FakeDaemon daemon;
  const std::string id_file = daemon.path() + ".id";
  ::setenv("TERN_SOCKET", daemon.path().c_str(), 1);
  EXPECT_EQ(std::system((TERN_FIRST_PROGRAM " " + id_file + " 0 1").c_str()), 0);
  ::setenv("TERN_SOCKET", id_file.c_str(), 1);
  EXPECT_NE(std::system((TERN_FIRST_PROGRAM " " + id_file + " 0 1").c_str()), 0);
  ::unsetenv("TERN_SOCKET");
}

}  // namespace
}  // namespace tern::testing
