#include "net/tcp/send_bound.h"

#include <gtest/gtest.h>
#include <linux/socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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

// Whoever has one segment waits for a second before it acknowledges it.
TEST_F(SendBoundTest, LeavesRoomForTwoSegments) {
  const Fd listener{::socket(AF_INET, SOCK_STREAM, 0)};
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), name, &size), 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(socket.get(), name, size), 0);
  int segment = 0;
  size = sizeof(segment);
  ASSERT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_MAXSEG, &segment, &size), 0);
  ASSERT_GT(segment, 16 << 10) << "the loopback interface's";
  SendBound bound(false);
  bound.set(socket.get(), {16 << 10});
  EXPECT_GE(option(socket, SO_SNDBUF), 2 * segment - 1);
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
