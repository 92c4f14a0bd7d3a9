#include <gtest/gtest.h>

#include "tests/client_lib/c_abi.h"
#include "tests/client_lib/fake_daemon.h"

namespace tern::testing {
namespace {

TEST(CAbi, EveryFunctionWorksFromC) {
  FakeDaemon daemon;
  EXPECT_EQ(tern_c_abi_run(daemon.path().c_str()), 0) << "the line of c_abi.c that failed";
}

}  // namespace
}  // namespace tern::testing
