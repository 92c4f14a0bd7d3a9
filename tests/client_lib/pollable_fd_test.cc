#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>

#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

class Pollable : public ClientTest {
 protected:
  void SetUp() override {
    ClientTest::SetUp();
    ASSERT_TERN_OK(tern_fd(client, &fd));
    daemon.set_ops(Ops::hold);
  }
  bool readable(int timeout_ms = 0) {
    pollfd waiting{fd, POLLIN, 0};
    return ::poll(&waiting, 1, timeout_ms) == 1;
  }
  int fd = -1;
};

TEST_F(Pollable, IsAlwaysTheSameDescriptor) {
  int again = -1;
  ASSERT_TERN_OK(tern_fd(client, &again));
  EXPECT_EQ(again, fd);
  EXPECT_FALSE(readable());
}

TEST_F(Pollable, ShowsAnEndAndIsQuietWhenItWasTold) {
  const tern_ticket ticket = submit_any();
  EXPECT_EQ(tern_test(client, ticket), TERN_ERR_TIMEOUT);
  EXPECT_FALSE(readable());
  daemon.await_entries(1);
  daemon.complete_held();
  EXPECT_TRUE(readable(-1));
  EXPECT_EQ(tern_test(client, ticket), TERN_OK);
  EXPECT_FALSE(readable());
}

TEST_F(Pollable, ShowsAnEndThatATestOfAnotherTicketHasFound) {
  const tern_ticket first = submit_any();
  const tern_ticket second = submit_any();
  daemon.await_entries(2);
  ASSERT_TERN_OK(tern_cancel(client, first));
  EXPECT_TRUE(readable(-1));
  EXPECT_EQ(tern_test(client, second), TERN_ERR_TIMEOUT);
  EXPECT_EQ(tern_test(client, second), TERN_ERR_TIMEOUT);
  EXPECT_TRUE(readable());
  EXPECT_EQ(tern_test(client, first), TERN_ERR_CANCELLED);
  EXPECT_FALSE(readable());
}

TEST_F(Pollable, IsQuietAgainWhereTheByteOfALaneComesLate) {
  const tern_ticket ticket = submit_any();
  daemon.await_entries(1);
  EXPECT_EQ(tern_test(client, ticket), TERN_ERR_TIMEOUT);
  daemon.with_last_client([](shm::Segment& segment, int) {
    std::atomic_ref<std::uint32_t>(segment.header().fd_armed).store(0);
  });
  EXPECT_EQ(tern_test(client, ticket), TERN_ERR_TIMEOUT);
  EXPECT_FALSE(readable());
  daemon.with_last_client([](shm::Segment&, int notify_fd) {
    const char byte = 1;
    EXPECT_EQ(::send(notify_fd, &byte, 1, MSG_NOSIGNAL), 1);
  });
  EXPECT_TRUE(readable());
  EXPECT_EQ(tern_test(client, ticket), TERN_ERR_TIMEOUT);
  EXPECT_FALSE(readable());
  daemon.complete_held();
  EXPECT_TRUE(readable(-1));
  EXPECT_EQ(tern_test(client, ticket), TERN_OK);
  EXPECT_FALSE(readable());
}

TEST_F(Pollable, MissesNoEndOfMany) {
  daemon.set_ops(Ops::complete);
  for (int round = 0; round < 2000; ++round) {
    tern_ticket ticket = 0;
    ASSERT_TERN_OK(tern_barrier(group, &ticket));
    tern_status status = TERN_ERR_TIMEOUT;
    while ((status = tern_test(client, ticket)) == TERN_ERR_TIMEOUT) ASSERT_TRUE(readable(-1));
    ASSERT_EQ(status, TERN_OK);
  }
}

}  // namespace
}  // namespace tern::testing
