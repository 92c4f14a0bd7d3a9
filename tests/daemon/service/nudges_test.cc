#include "daemon/service/nudges.h"

#include <gtest/gtest.h>

#include <csignal>

#include "tests/lingering_socket.h"

namespace tern::daemon {
namespace {

// It would sleep for ten minutes.
TEST(Nudges, EndTheSleepOfALingeringSocketsClose) {
  tests::LingeringSocket socket;
  const Nudges nudges;
  socket.close();
}

TEST(Nudges, ReachAThreadThatBlocksTheSignal) {
  sigset_t urgent;
  sigemptyset(&urgent);
  sigaddset(&urgent, SIGURG);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &urgent, nullptr), 0);
  tests::LingeringSocket socket;
  const Nudges nudges;
  socket.close();
}

}  // namespace
}  // namespace tern::daemon
