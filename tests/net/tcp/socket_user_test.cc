#include "net/tcp/socket_user.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/fd.h"

namespace tern::net {
namespace {

sockaddr* generic(sockaddr_storage& address) {
  return static_cast<sockaddr*>(static_cast<void*>(&address));
}

// Both ends of a connection within this machine; `there` was made by `user`, if that is not zero.
struct Connected {
  explicit Connected(int family, bool mapped = false, uid_t user = 0) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    const Fd listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address.ss_family = static_cast<sa_family_t>(family);
    const char* const host = family == AF_INET ? "127.0.0.1" : mapped ? "::ffff:127.0.0.1" : "::1";
    ::inet_pton(family, host, host_of(address));
    EXPECT_EQ(::bind(listener.get(), generic(address), size_of(family)), 0) << std::strerror(errno);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), generic(address), &size), 0);
    if (mapped) {
      // The other end knows nothing of IPv6.
      const in_port_t port = static_cast<sockaddr_in6*>(static_cast<void*>(&address))->sin6_port;
      address = {};
      address.ss_family = AF_INET;
      ::inet_pton(AF_INET, "127.0.0.1", host_of(address));
      static_cast<sockaddr_in*>(static_cast<void*>(&address))->sin_port = port;
    }
    // A thread alone can have another user: the system call is not the library's.
    std::thread([&] {
      if (user != 0) {
        ASSERT_EQ(::syscall(SYS_setresuid, user, user, user), 0);
      }
      there = Fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(::connect(there.get(), generic(address), size_of(address.ss_family)), 0);
    }).join();
    here = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  static void* host_of(sockaddr_storage& address) {
    void* const bytes = &address;
    if (address.ss_family == AF_INET) return &static_cast<sockaddr_in*>(bytes)->sin_addr;
    return &static_cast<sockaddr_in6*>(bytes)->sin6_addr;
  }
  static socklen_t size_of(int family) {
    return family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  }

  Fd here, there;
};

TEST(SocketUser, IsWhoMadeTheOtherEnd) {
  EXPECT_EQ(user_of_other_end(Connected(AF_INET).here.get()), ::getuid());
  EXPECT_EQ(user_of_other_end(Connected(AF_INET6).here.get()), ::getuid());
}

TEST(SocketUser, IsFoundWhereIpv4ComesToAListenerOfIpv6) {
  EXPECT_EQ(user_of_other_end(Connected(AF_INET6, true).here.get()), ::getuid());
}

TEST(SocketUser, IsNotTheUserOfThisEnd) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  constexpr uid_t kAlice = 4'001;
  EXPECT_EQ(user_of_other_end(Connected(AF_INET, false, kAlice).here.get()), kAlice);
}

TEST(SocketUser, IsUnknownWhenTheOtherEndIsGone) {
  Connected connection(AF_INET);
  connection.there.reset();
  EXPECT_EQ(user_of_other_end(connection.here.get()), std::nullopt);
  EXPECT_EQ(user_of_other_end(-1), std::nullopt);
}

TEST(SocketUser, IsUnknownOfWhatIsNoTcp) {
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(user_of_other_end(socket.get()), std::nullopt);
}

}  // namespace
}  // namespace tern::net
