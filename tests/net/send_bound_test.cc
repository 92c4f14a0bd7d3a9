#include "net/tcp/send_bound.h"

#include <gtest/gtest.h>
#include <linux/socket.h>
#include <sys/socket.h>

#include "base/fd.h"

namespace tern::net {
namespace {

int option(const Fd& socket, int name) {
  int value = -1;
  socklen_t bytes = sizeof(value);
  EXPECT_EQ(::getsockopt(socket.get(), SOL_SOCKET, name, &value, &bytes), 0);
  return value;
}

class SendBoundTest : public testing::Test {
 protected:
  bool is_fixed() const { return (option(socket, SO_BUF_LOCK) & SOCK_SNDBUF_LOCK) != 0; }

  const Fd socket{::socket(AF_INET, SOCK_STREAM, 0)};
};

TEST_F(SendBoundTest, IsGivenBackToTheKernel) {
  SendBound bound(false);
  bound.set(socket.get(), {0});
  EXPECT_FALSE(is_fixed());
  bound.set(socket.get(), {50'000});
  EXPECT_EQ(option(socket, SO_SNDBUF), 50'000);
  EXPECT_TRUE(is_fixed());
  bound.set(socket.get(), {0});
  EXPECT_FALSE(is_fixed());
}

TEST_F(SendBoundTest, LeavesSmallChangesAlone) {
  SendBound bound(false);
  bound.set(socket.get(), {80'000});
  bound.set(socket.get(), {75'000});
  EXPECT_EQ(option(socket, SO_SNDBUF), 80'000);
  bound.set(socket.get(), {60'000});
  EXPECT_EQ(option(socket, SO_SNDBUF), 60'000);
}

TEST_F(SendBoundTest, LeavesASizeThatIsASetting) {
  const int size = 100'000;
  ASSERT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
  SendBound bound(true);
  bound.set(socket.get(), {50'000});
  EXPECT_EQ(option(socket, SO_SNDBUF), 2 * size);
  bound.set(socket.get(), {0});
  EXPECT_TRUE(is_fixed());
}

TEST_F(SendBoundTest, LeavesTheReceiveBufferFixed) {
  const int size = 100'000;
  ASSERT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
  SendBound bound(false);
  bound.set(socket.get(), {50'000});
  bound.set(socket.get(), {0});
  EXPECT_EQ(option(socket, SO_BUF_LOCK), SOCK_RCVBUF_LOCK);
}

}  // namespace
}  // namespace tern::net
