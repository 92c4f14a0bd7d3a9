// A member's daemon dies while its ranks wait for others, and another is started in its place
// before the coordinator has given up the old one's link.

#include "coordinator_rig.h"
#include "daemon/membership/group_split.h"

namespace tern::daemon::coordinator_test {
namespace {

// Where kB was.
constexpr LinkRef kAgain = 44;

class RestartedJoins : public CoordinatorTest {
 protected:
  // As a daemon does that says it is at kB's address.
  json rejoin_of(LinkRef from, std::uint32_t rank, std::int64_t size) {
    json message = join_of(from, rank, size);
    message["address"] = address(kB);
    message["nonce"] = std::string(32, 'd');
    return message;
  }
  void rejoin(std::uint32_t rank, std::int64_t size) {
    join(kAgain, rejoin_of(kAgain, rank, size));
  }
  void ask(LinkRef from, const json& message) {
    coordinator_.on_message(from, message);
    ASSERT_NE(last(from, "challenge"), nullptr);
  }
  void answer(LinkRef from, const json& message) {
    const json* const challenge = last(from, "challenge");
    ASSERT_NE(challenge, nullptr);
    prove(from, message, json(*challenge), id_.secret);
  }
  // Of rank 1, in the epoch that began last.
  std::string node_of_rank_1() const {
    const json body = members(kA);
    return body.is_null() ? "" : body["nodes"][1]["id"].get<std::string>();
  }
  std::set<LinkRef> links() const {
    std::set<LinkRef> in_use;
    coordinator_.add_links(in_use);
    return in_use;
  }
};

TEST_F(RestartedJoins, TakeThePlaceOfTheOldDaemons) {
  join(kB, 1, 2);
  ask(kAgain, rejoin_of(kAgain, 1, 2));
  EXPECT_EQ(last(kB, "refused"), nullptr) << "before it has proven itself";
  answer(kAgain, rejoin_of(kAgain, 1, 2));
  expect_refused(kB, Errc::peer_lost, "another daemon has joined from host22:7000");
  tell_changed();
  EXPECT_EQ((*last(kAgain, "waiting"))["missing"], json::array({0}));
  EXPECT_EQ(links(), std::set<LinkRef>{kAgain});
  join(kA, 0, 2);
  EXPECT_EQ(node_of_rank_1(), node_id(kAgain));
  EXPECT_EQ(last(kB, "members"), nullptr);
}

// No epoch begins with some ranks of the old daemon and some of the new one.
TEST_F(RestartedJoins, EndAllJoinsOfTheOldDaemon) {
  join(kB, 1, 3);
  join(kB, 2, 3);
  rejoin(1, 3);
  join(kA, 0, 3);
  EXPECT_EQ(last(kA, "members"), nullptr);
  tell_changed();
  EXPECT_EQ((*last(kA, "waiting"))["missing"], json::array({2}));
  rejoin(2, 3);
  EXPECT_EQ(node_of_rank_1(), node_id(kAgain));
}

TEST_F(RestartedJoins, OfAStrangerWithoutTheSecretChangeNothing) {
  join(kB, 1, 2);
  const json stranger = rejoin_of(kC, 1, 2);
  ask(kC, stranger);
  auto wrong = id_.secret;
  wrong[0] ^= std::byte{1};
  prove(kC, stranger, json(*last(kC, "challenge")), wrong);
  expect_refused(kC, Errc::bad_secret, "secret");
  EXPECT_EQ(links(), std::set<LinkRef>{kB});
  ask(kC, stranger);  // and is silent
  EXPECT_EQ(last(kB, "refused"), nullptr);
  join(kA, 0, 2);
  EXPECT_EQ(node_of_rank_1(), node_id(kB));
  say(kA, "ready", 1);
  say(kB, "ready", 1);
  EXPECT_NE(last(kB, "start"), nullptr);
}

TEST_F(RestartedJoins, MakeWayForAnotherWhileTheyAreNotProven) {
  join(kB, 1, 2);
  ask(kC, rejoin_of(kC, 1, 2));
  rejoin(1, 2);
  expect_refused(kC, Errc::rank_taken, "another process joined first");
  answer(kC, rejoin_of(kC, 1, 2));
  join(kA, 0, 2);
  EXPECT_EQ(node_of_rank_1(), node_id(kAgain));
}

TEST_F(RestartedJoins, DisplaceAtOnceWhoHasNotProvenItself) {
  ask(kB, join_of(kB, 1, 2));
  ask(kAgain, rejoin_of(kAgain, 1, 2));
  expect_refused(kB, Errc::rank_taken, "another process joined first");
}

// A proof of the old daemon may still be under way when the new one asks.
TEST_F(RestartedJoins, AreNotRefusedByALateProofOfTheOldDaemon) {
  ask(kAgain, rejoin_of(kAgain, 1, 3));
  join(kB, 2, 3);
  EXPECT_EQ(last(kAgain, "refused"), nullptr);
  answer(kAgain, rejoin_of(kAgain, 1, 3));
  expect_refused(kB, Errc::peer_lost, "another daemon");
}

TEST_F(RestartedJoins, HaveAnotherNodeIdAndTheSameAddress) {
  join(kB, 1, 2);
  json other = rejoin_of(kC, 1, 2);
  other["address"] = address(kC);
  coordinator_.on_message(kC, other);
  expect_refused(kC, Errc::rank_taken, "rank 1 has joined from node");
  other = rejoin_of(kAgain, 1, 2);
  other["node"] = node_id(kB);
  coordinator_.on_message(kAgain, other);
  expect_refused(kAgain, Errc::rank_taken, "rank 1 has joined from node");
}

TEST_F(RestartedJoins, TakeNoPlaceOfTheCoordinatorsOwnRanks) {
  join(kSelf, 1, 2);
  json other = rejoin_of(kC, 1, 2);
  other["address"] = address(kSelf);
  coordinator_.on_message(kC, other);
  expect_refused(kC, Errc::rank_taken, "rank 1 has joined from node");
  other = rejoin_of(kC, 0, 2);
  other["address"] = address(kSelf);
  join(kC, other);
  EXPECT_EQ(last(kSelf, "refused"), nullptr);
  EXPECT_NE(last(kSelf, "members"), nullptr);
}

TEST_F(RestartedJoins, StayWhenTheOldLinkIsLostOrTheOldJoinIsTakenBack) {
  join(kB, 1, 2);
  rejoin(1, 2);
  withdraw(kB, join_of(kB, 1, 2));
  EXPECT_NE(last(kB, "withdrawn"), nullptr);
  lose(kB, "its resume time is over");
  EXPECT_EQ(links(), std::set<LinkRef>{kAgain});
  join(kA, 0, 2);
  EXPECT_EQ(node_of_rank_1(), node_id(kAgain));
}

TEST_F(RestartedJoins, AreProvenAlsoWhenTheOldOnesHaveGoneMeanwhile) {
  for (const bool is_lost : {true, false}) {
    sent_.clear();
    join(kB, 1, 2);
    ask(kAgain, rejoin_of(kAgain, 1, 2));
    if (is_lost) {
      lose(kB, "gone");
    } else {
      withdraw(kB, join_of(kB, 1, 2));
    }
    EXPECT_EQ(links(), std::set<LinkRef>{kAgain});
    answer(kAgain, rejoin_of(kAgain, 1, 2));
    join(kA, 0, 2);
    EXPECT_EQ(node_of_rank_1(), node_id(kAgain));
    say(kA, "ended", static_cast<std::uint32_t>(members(kA)["epoch"]), {{"code", 7}});
  }
}

TEST_F(RestartedJoins, AreRefusedWhereAnotherHasProvenItselfMeanwhile) {
  join(kB, 1, 2);
  ask(kAgain, rejoin_of(kAgain, 1, 2));
  lose(kB, "gone");
  join(kC, 1, 2);
  answer(kAgain, rejoin_of(kAgain, 1, 2));
  expect_refused(kAgain, Errc::rank_taken, "rank 1 has joined from node");
  join(kA, 0, 2);
  EXPECT_EQ(node_of_rank_1(), node_id(kC));
}

TEST_F(RestartedJoins, DisplaceOneThatHasNotProvenItselfMeanwhile) {
  join(kB, 1, 2);
  ask(kAgain, rejoin_of(kAgain, 1, 2));
  lose(kB, "gone");
  ask(kC, join_of(kC, 1, 2));
  answer(kAgain, rejoin_of(kAgain, 1, 2));
  expect_refused(kC, Errc::rank_taken, "another process joined first");
  EXPECT_EQ(links(), std::set<LinkRef>{kAgain});
}

TEST_F(RestartedJoins, AreForgottenWithTheirLinkAndWhenTheyAreTakenBack) {
  join(kB, 1, 2);
  const json again = rejoin_of(kAgain, 1, 2);
  ask(kAgain, again);
  EXPECT_EQ(links(), (std::set<LinkRef>{kB, kAgain}));
  withdraw(kAgain, again);
  answer(kAgain, again);
  EXPECT_EQ(links(), std::set<LinkRef>{kB});
  ask(kAgain, again);
  lose(kAgain, "gone");
  answer(kAgain, again);
  EXPECT_EQ(links(), std::set<LinkRef>{kB});
  EXPECT_EQ(last(kB, "refused"), nullptr);
}

TEST_F(RestartedJoins, ThatAskAnewAreChallengedAnew) {
  join(kB, 1, 2);
  ask(kAgain, rejoin_of(kAgain, 1, 2));
  json anew = rejoin_of(kAgain, 1, 2);
  anew["nonce"] = std::string(32, 'e');
  join(kAgain, anew);
  EXPECT_EQ(last(kAgain, "refused"), nullptr);
  join(kA, 0, 2);
  EXPECT_EQ(node_of_rank_1(), node_id(kAgain));
}

TEST_F(RestartedJoins, HaveABoundAndADeadlineWhileTheyAreNotProven) {
  constexpr LinkRef kCrowd = 5'000;
  join(kB, 1, 2);
  ask(kCrowd, rejoin_of(kCrowd, 1, 2));
  const std::string uid = uid_;
  for (std::size_t i = 1; i < Coordinator::kJoiners.of_one; ++i) {
    uid_ = std::string(31, '0') + "1";
    coordinator_.on_message(kCrowd, join_of(kCrowd, static_cast<std::uint32_t>(i), 1024));
  }
  EXPECT_EQ(last(kCrowd, "refused"), nullptr);
  coordinator_.on_message(kCrowd, join_of(kCrowd, 0, 1024));
  expect_refused(kCrowd, Errc::quota_exceeded, "1024 joins that came from source 5");
  uid_ = uid;
  sent_.clear();
  clock_.advance_ns(Coordinator::kProofNs - 1);
  EXPECT_TRUE(coordinator_.expire_challengers(TimeSlice(clock_, 1)));
  EXPECT_EQ(last(kCrowd, "refused"), nullptr);
  clock_.advance_ns(1);
  EXPECT_FALSE(coordinator_.expire_challengers(TimeSlice(clock_, 0))) << "there may be more";
  expect_refused(kCrowd, Errc::timeout, "no proof");
  EXPECT_TRUE(coordinator_.expire_challengers(TimeSlice(clock_, 0)));
  uid_ = std::string(31, '0') + "1";
  sent_.clear();
  coordinator_.on_message(kCrowd, join_of(kCrowd, 0, 1024));
  EXPECT_EQ(last(kCrowd, "refused"), nullptr) << "its place is free";
  uid_ = uid;
  join(kA, 0, 2);
  EXPECT_EQ(node_of_rank_1(), node_id(kB));
}

// The epoch begins with a daemon that is gone, while its successor is about to prove itself.
TEST_F(RestartedJoins, EndTheEpochThatHasBegunMeanwhile) {
  join(kB, 1, 2);
  ask(kAgain, rejoin_of(kAgain, 1, 2));
  join(kA, 0, 2);
  EXPECT_EQ(node_of_rank_1(), node_id(kB));
  answer(kAgain, rejoin_of(kAgain, 1, 2));
  EXPECT_EQ((*last(kA, "end"))["code"], static_cast<int>(Errc::peer_lost));
  join(kA, 0, 2);
  EXPECT_EQ(members(kA)["epoch"], 2);
  EXPECT_EQ(node_of_rank_1(), node_id(kAgain));
}

// What the old daemon had joined for the next epoch does not begin one.
TEST_F(RestartedJoins, EndARunningEpochAndWhatTheOldDaemonHadJoinedForTheNext) {
  join(kA, 0, 3);
  join(kB, 1, 3);
  join(kC, 2, 3);
  say(kA, "left", 1, {{"rank", 0}});
  say(kB, "left", 1, {{"rank", 1}});
  join(kA, 0, 2);
  join(kB, 1, 2);
  sent_.clear();
  rejoin(1, 2);
  EXPECT_NE(last(kC, "end"), nullptr);
  expect_refused(kB, Errc::peer_lost, "another daemon");
  EXPECT_EQ(members(kA)["epoch"], 2);
  EXPECT_EQ(node_of_rank_1(), node_id(kAgain));
  EXPECT_EQ(last(kB, "members"), nullptr);
}

TEST_F(RestartedJoins, KeepTheirGroupWhenRoomIsMade) {
  join(kB, 1, 2);
  ask(kAgain, rejoin_of(kAgain, 1, 2));
  lose(kB, "gone");
  for (std::size_t i = 0; i < CoordinatedGroups::kPerUser; ++i) {
    coordinator_.learn(*mint_group_id("host11", 7000), kUser);
  }
  answer(kAgain, rejoin_of(kAgain, 1, 2));
  tell_changed();
  EXPECT_NE(last(kAgain, "waiting"), nullptr);
}

TEST_F(RestartedJoins, AreToldWhereTheGroupIsTurnedIntoASplit) {
  join(kA, 0, 2);
  join(kB, 1, 2);
  say(kA, "ready", 1);
  say(kB, "ready", 1);
  const std::string incarnation = members(kA)["incarnation"];
  const std::string parent = uid_;
  id_ = gathering_id(id_, {1, incarnation, 0});
  uid_ = to_hex(id_.uid);
  coordinator_.learn(id_, kUser);
  join(kB, 1, 2);
  ask(kAgain, rejoin_of(kAgain, 1, 2));
  json split = join_of(kA, 0, 2);
  split["split"] = {{"parent", parent}, {"epoch", 1}, {"sequence", 0}, {"color", 0}, {"key", 0}};
  coordinator_.on_message(kA, split);
  expect_refused(kB, Errc::permission_denied, "come of a split");
  expect_refused(kAgain, Errc::permission_denied, "come of a split");
}

}  // namespace
}  // namespace tern::daemon::coordinator_test
