#include "daemon/service/unread_sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

namespace tern::daemon {
namespace unread_sockets_test {

struct Ends {
  Ends() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    ours = Fd(ends[0]);
    theirs = Fd(ends[1]);
  }
  void send() const { EXPECT_EQ(::send(ours.get(), "x", 1, 0), 1); }
  void read() const {
    char byte = 0;
    EXPECT_EQ(::recv(theirs.get(), &byte, 1, 0), 1);
  }
  Fd ours, theirs;
};

TEST(UnreadSockets, KnowWhatTheOtherSideHasRead) {
  const Ends ends;
  EXPECT_FALSE(UnreadSockets::has_unread(ends.ours));
  ends.send();
  EXPECT_TRUE(UnreadSockets::has_unread(ends.ours));
  ends.read();
  EXPECT_FALSE(UnreadSockets::has_unread(ends.ours));
}

TEST(UnreadSockets, AreGivenBackOnceTheyAreReadOrClosed) {
  UnreadSockets unread;
  Ends read, closed, held;
  for (Ends* const ends : {&read, &closed, &held}) {
    ends->send();
    unread.keep(7, std::move(ends->ours));
  }
  EXPECT_TRUE(unread.take_read().empty());
  read.read();
  closed.theirs.reset();
  auto taken = unread.take_read();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].first, 7u);
  EXPECT_FALSE(unread.empty());
  EXPECT_EQ(unread.take_all().size(), 1u);
  EXPECT_TRUE(unread.empty());
}

TEST(UnreadSockets, OfOneUserLeaveNoRoomForHimAlone) {
  UnreadSockets unread;
  std::vector<Ends> all(UnreadSockets::kMostOfOne);
  for (Ends& ends : all) {
    EXPECT_TRUE(unread.has_room(7));
    ends.send();
    unread.keep(7, std::move(ends.ours));
  }
  EXPECT_FALSE(unread.has_room(7));
  EXPECT_TRUE(unread.has_room(8));
  all.pop_back();
  EXPECT_EQ(unread.take_read().size(), 1u);
  EXPECT_TRUE(unread.has_room(7));
}

}  // namespace unread_sockets_test
}  // namespace tern::daemon
