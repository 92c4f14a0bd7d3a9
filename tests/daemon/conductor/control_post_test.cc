#include "daemon/conductor/control_post.h"

#include <algorithm>
#include <vector>

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class ControlPostTest : public PartRig {};

TEST_F(ControlPostTest, WhatADaemonTellsItselfWaitsInOrder) {
  post_.send(kSelf, {{"t", "first"}});
  post_.send(kSelf, {{"t", "second"}});
  ASSERT_TRUE(post_.has_mail());
  EXPECT_EQ(post_.take()["t"], "first");
  EXPECT_EQ(post_.take()["t"], "second");
  EXPECT_FALSE(post_.has_mail());
}

// The clock of a test stands still: a slice is over at once, or never.
TEST_F(ControlPostTest, DeliversWhatThereIsTimeFor) {
  for (int i = 0; i < 300; ++i) post_.send(kSelf, {{"number", i}});
  std::vector<int> heard;
  const auto hear = [&](const nlohmann::json& message) {
    heard.push_back(message["number"].get<int>());
    if (heard.size() == 1) post_.send(kSelf, {{"number", 300}});  // as an answer is
  };
  EXPECT_EQ(post_.deliver(TimeSlice(clock_, 0), hear), 1);
  EXPECT_EQ(post_.deliver(TimeSlice(clock_, 0), hear), 1);
  EXPECT_EQ(post_.deliver(TimeSlice(clock_, kSecond), hear), 256) << "and no more at once";
  EXPECT_EQ(post_.deliver(TimeSlice(clock_, kSecond), hear), 43);
  EXPECT_EQ(post_.deliver(TimeSlice(clock_, kSecond), hear), 0);
  ASSERT_EQ(heard.size(), 301u);
  EXPECT_TRUE(std::is_sorted(heard.begin(), heard.end()));
}

TEST_F(ControlPostTest, ReachesItselfAndOpenLinksAlone) {
  EXPECT_TRUE(post_.reaches(kSelf));
  const LinkRef link = post_.open({"there", 7000});
  EXPECT_NE(link, kSelf);
  EXPECT_FALSE(post_.reaches(link));
  post_.send(link, {{"t", "join"}});
  EXPECT_FALSE(post_.has_mail());
}

// A group may have many nodes, and very many ranks may be refused at once.
TEST_F(ControlPostTest, SendsLettersInOrderAsThereIsTimeFor) {
  std::vector<LinkRef> to{kSelf};
  for (std::uint16_t port = 7001; port < 7004; ++port) to.push_back(post_.open({"there", port}));
  const auto sent = [this] {
    std::vector<std::uint64_t> of_links;
    for (const auto& row : links_.rows()) of_links.push_back(row.stats.frames_sent);
    return of_links;
  };
  using Frames = std::vector<std::uint64_t>;
  post_.send_to_all(to, {{"t", "start"}});
  EXPECT_EQ(sent(), (Frames{1, 1, 1})) << "a little is sent at once";
  while (!post_.has_letters()) post_.send(to[1], {{"t", "refused"}});
  EXPECT_EQ(sent(), (Frames{62, 1, 1}));
  post_.send_to_all(to, {{"t", "end"}});
  EXPECT_EQ(mail("end").size(), 1u) << "to itself";
  EXPECT_EQ(post_.dispatch(TimeSlice(clock_, 0)), 1);
  EXPECT_EQ(sent(), (Frames{63, 1, 1}));
  EXPECT_EQ(post_.dispatch(TimeSlice(clock_, 0)), 1);
  EXPECT_EQ(sent(), (Frames{64, 1, 1}));
  post_.send(to[3], {{"t", "refused"}});
  EXPECT_EQ(sent(), (Frames{64, 2, 3})) << "in order, and at once again in this turn";
  EXPECT_FALSE(post_.has_letters());
  EXPECT_EQ(post_.dispatch(TimeSlice(clock_, 1)), 0);
}

TEST_F(ControlPostTest, HasRoomForNewsUntilVeryManyLettersWait) {
  const LinkRef link = post_.open({"there", 7001});
  for (int i = 0; i < 64; ++i) post_.send(link, {{"t", "sent at once"}});
  for (int i = 0; i < 256; ++i) {
    EXPECT_TRUE(post_.has_room()) << i;
    post_.send(link, {{"t", "end"}});
  }
  EXPECT_FALSE(post_.has_room());
  post_.dispatch(TimeSlice(clock_, 0));
  EXPECT_TRUE(post_.has_room());
}

}  // namespace
}  // namespace tern::daemon::conductor_test
