#include "base/passed_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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

class LeftDescriptors : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, GetParam() | SOCK_CLOEXEC, 0, ends), 0);
    here.reset(ends[0]);
    there.reset(ends[1]);
    for (Fd& end : pipe) end.reset();
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    pipe = {Fd(ends[0]), Fd(ends[1])};
  }
  // Whether somebody has the writing end.
  bool is_held() const {
    char byte = 0;
    return ::read(pipe[0].get(), &byte, 1) < 0 && errno == EAGAIN;
  }

  Fd here, there;
  std::array<Fd, 2> pipe;
};

TEST_P(LeftDescriptors, StayInTheSocketUntilWhatHasComeIsDropped) {
  const int next = ::dup(here.get());  // the number that a descriptor would get that is taken
  ::close(next);
  ASSERT_EQ(tests::send_descriptor(there.get(), pipe[1].get(), kWord), 0);
  pipe[1].reset();
  std::array<std::byte, 16> bytes;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(receive_without_descriptors(here.get(), bytes).has_left_descriptors);
    EXPECT_TRUE(is_held());
    EXPECT_EQ(::fcntl(next, F_GETFD), -1) << "it was taken";
  }
  drop_received(here.get());
  EXPECT_FALSE(is_held());
  EXPECT_NE(tests::send_descriptor(there.get(), here.get(), kWord), 0);
}

TEST_P(LeftDescriptors, TakeNothingAlongThatCameBefore) {
  std::array<std::byte, 2> few;
  EXPECT_EQ(receive_without_descriptors(here.get(), few).error, EAGAIN);
  ASSERT_EQ(::send(there.get(), kWord.data(), 2, 0), 2);
  const Received before = receive_without_descriptors(here.get(), few);
  EXPECT_FALSE(before.has_left_descriptors);
  EXPECT_EQ(before.bytes, 2);
  EXPECT_EQ(few[1], kWord[1]);
  ASSERT_EQ(tests::send_descriptor(there.get(), pipe[1].get(), kWord), 0);
  EXPECT_TRUE(receive_without_descriptors(here.get(), few).has_left_descriptors);
  there.reset();
  drop_received(here.get());
  EXPECT_EQ(receive_without_descriptors(here.get(), few).bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Sockets, LeftDescriptors, ::testing::Values(SOCK_SEQPACKET, SOCK_STREAM),
                         [](const auto& each) {
                           return each.param == SOCK_STREAM ? "Stream" : "Packets";
                         });

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
