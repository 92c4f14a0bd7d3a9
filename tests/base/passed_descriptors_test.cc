#include "base/passed_descriptors.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <vector>

#include "tests/lingering_socket.h"

namespace tern {
namespace {

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    here.reset(ends[0]);
    there.reset(ends[1]);
  }
  Fd here, there;
};

const std::array kWord{std::byte{7}, std::byte{8}, std::byte{9}};

// Kernels since Linux 6.16 refuse them for us; older ones deliver them.
TEST(PassedDescriptors, AreRefusedOrOwned) {
  for (const bool asked : {false, true}) {
    Pair pair;
    const bool refused = asked && refuse_passed_descriptors(pair.here.get());
    Pair passed;
    const int error = tests::send_descriptor(pair.there.get(), passed.here.get(), kWord);
    EXPECT_EQ(error, refused ? EPERM : 0);
    std::array<std::byte, 16> bytes;
    const Received received = receive_with_descriptors(pair.here.get(), bytes);
    EXPECT_EQ(received.bytes, refused ? -1 : 3);
    EXPECT_EQ(received.error, refused ? EAGAIN : 0);
    EXPECT_EQ(received.fds.size(), refused ? 0u : 1u);
  }
}

TEST(PassedDescriptors, OfAnAcceptingSocketAreRefusedToWhatItAccepts) {
  const Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;  // the kernel chooses an abstract name
  const auto generic = [&at] { return static_cast<sockaddr*>(static_cast<void*>(&at)); };
  ASSERT_EQ(::bind(listener.get(), generic(), sizeof at.sun_family), 0);
  ASSERT_EQ(::listen(listener.get(), 4), 0);
  socklen_t bytes = sizeof at;
  ASSERT_EQ(::getsockname(listener.get(), generic(), &bytes), 0);
  const bool refused = refuse_passed_descriptors(listener.get());
  const Fd client(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), generic(), bytes), 0);
  const Fd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  Pair passed;
  EXPECT_EQ(tests::send_descriptor(client.get(), passed.here.get(), kWord), refused ? EPERM : 0);
  // The way back is open: a daemon passes descriptors to its clients.
  EXPECT_EQ(tests::send_descriptor(accepted.get(), passed.here.get(), kWord), 0);
}

// The kernel closes what there is no room for, at once and in the receiver's thread.
TEST(PassedDescriptors, AsManyAsAMessageCanHaveAreOwned) {
  Pair pair, passed;
  const std::vector<int> many(kMaxPassedFds, passed.here.get());
  ASSERT_EQ(tests::send_descriptors(pair.there.get(), many, kWord), 0);
  std::array<std::byte, 16> bytes;
  const Received received = receive_with_descriptors(pair.here.get(), bytes);
  EXPECT_EQ(received.fds.size(), many.size());
  EXPECT_FALSE(received.cut);
}

TEST(PassedDescriptors, ReceivingSaysWhatElseHasHappened) {
  Pair pair;
  std::array<std::byte, 2> few;
  EXPECT_EQ(receive_with_descriptors(pair.here.get(), few).error, EAGAIN);
  ASSERT_EQ(::send(pair.there.get(), kWord.data(), kWord.size(), 0), 3);
  const Received cut = receive_with_descriptors(pair.here.get(), few);
  EXPECT_EQ(cut.bytes, 2);
  EXPECT_TRUE(cut.cut);
  pair.there.reset();
  const Received end = receive_with_descriptors(pair.here.get(), few);
  EXPECT_EQ(end.bytes, 0);
  EXPECT_EQ(end.error, 0);
}

}  // namespace
}  // namespace tern
