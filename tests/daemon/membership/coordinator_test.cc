#include "daemon/membership/coordinator.h"

#include <algorithm>

#include "coordinator_rig.h"

namespace tern::daemon::coordinator_test {
namespace {

TEST_F(CoordinatorTest, TheEpochBeginsWhenTheLastRankHasProvenItself) {
  join(kB, 1, 3);
  join(kA, 0, 3);
  EXPECT_EQ(last(kA, "members"), nullptr);
  tell_changed();
  EXPECT_EQ((*last(kB, "waiting"))["missing"], json::array({2}));
  join(kB, 2, 3);
  const json body = members(kA);
  EXPECT_EQ(body, members(kB));
  EXPECT_EQ(body["epoch"], 1);
  EXPECT_EQ(body["last_common_op"], 0);
  ASSERT_EQ(body["nodes"].size(), 2u);  // in the order of their lowest ranks
  EXPECT_EQ(body["nodes"][0]["ranks"], json::array({0}));
  EXPECT_EQ(body["nodes"][1]["ranks"], json::array({1, 2}));
  EXPECT_EQ((*last(kA, "members"))["hmac"],
            members_proof(id_.secret, (*last(kA, "members"))["body"]));
  EXPECT_EQ(body["nodes"][1]["nonces"],
            json::array({join_of(kB, 1, 3)["nonce"], join_of(kB, 2, 3)["nonce"]}));
  say(kA, "ready", 1);
  EXPECT_EQ(last(kA, "start"), nullptr);
  say(kB, "ready", 1);
  EXPECT_NE(last(kA, "start"), nullptr);
  EXPECT_NE(last(kB, "start"), nullptr);
}

// Ranks that come one after the other do not have all others told of each.
TEST_F(CoordinatorTest, WhomAGroupWaitsForIsSaidNowAndThen) {
  constexpr std::int64_t kSize = 100;
  const auto lists_to = [this](LinkRef link) {
    return std::count_if(sent_.begin(), sent_.end(), [link](const auto& one) {
      return one.first == link && one.second["t"] == "waiting";
    });
  };
  const TimeSlice slice(clock_, 1);
  for (std::uint32_t rank = 0; rank < kSize - 1; ++rank) {
    join(rank % 2 == 0 ? kA : kB, rank, kSize);
    EXPECT_EQ(coordinator_.tell_changed(slice), 0);
  }
  EXPECT_EQ(lists_to(kA) + lists_to(kB), 1);
  EXPECT_EQ(coordinator_.next_deadline_ns(), clock_.now_ns() + 250'000'000);
  EXPECT_EQ(tell_changed(), 1);
  EXPECT_EQ((*last(kA, "waiting"))["missing"], json::array({kSize - 1}));
  EXPECT_EQ((*last(kB, "waiting"))["missing"], json::array({kSize - 1}));
  EXPECT_EQ(lists_to(kA) + lists_to(kB), 3);
  EXPECT_EQ(coordinator_.next_deadline_ns(), ~std::uint64_t{0});
  join(kB, kSize - 1, kSize);
  EXPECT_NE(last(kA, "members"), nullptr);
}

// What goes to all nodes is made once: a list of members is as long as the group is large.
TEST_F(CoordinatorTest, WhatAllNodesAreToldIsOneMessage) {
  const auto made_by = [this](auto act) {
    const std::size_t before = messages_;
    act();
    return messages_ - before;
  };
  join(kA, 0, 3);
  join(kB, 1, 3);
  EXPECT_EQ(made_by([this] { tell_changed(); }), 1u) << "whom the group waits for";
  coordinator_.on_message(kC, join_of(kC, 2, 3));
  const json challenge = *last(kC, "challenge");
  EXPECT_EQ(made_by([&] { prove(kC, join_of(kC, 2, 3), challenge, id_.secret); }), 1u)
      << "the members";
  say(kA, "ready", 1);
  say(kB, "ready", 1);
  EXPECT_EQ(made_by([this] { say(kC, "ready", 1); }), 1u) << "the start";
  EXPECT_EQ(made_by([this] { say(kA, "ended", 1, {{"code", 3}, {"text", "lost"}}); }), 1u);
  for (const LinkRef link : {kA, kB, kC}) {
    for (const char* type : {"members", "start", "end"}) EXPECT_NE(last(link, type), nullptr);
  }
}

// It may have been challenged, and its proof would be for an epoch that has begun.
TEST_F(CoordinatorTest, WhoSpeaksOfALargerGroupIsToldWhenASmallerOneBegins) {
  join(kA, 0, 2);
  coordinator_.on_message(kC, join_of(kC, 5, 6));
  ASSERT_NE(last(kC, "challenge"), nullptr);
  join(kB, 1, 2);
  EXPECT_NE(last(kA, "members"), nullptr);
  EXPECT_EQ(last(kC, "members"), nullptr);
  expect_refused(kC, Errc::wrong_size, "another size");
}

TEST_F(CoordinatorTest, TheLeastOfAllLimitsIsAgreed) {
  json other = join_of(kB, 1, 2);
  other["lanes"] = 1;
  other["chunk_bytes"] = 16384;
  other["eager_bytes"] = 10;
  other["max_ops"] = 3;
  other["cut"] = 1;
  other["eager_form"] = 1;
  other["rooted_form"] = 1;
  other["lossy_min"] = 99;
  other["op_timeout_ms"] = 5000;
  other["verify"] = true;
  join(kA, 0, 2);
  join(kB, other);
  const json body = members(kA);
  EXPECT_EQ(body["lanes"], 1);
  EXPECT_EQ(body["chunk_bytes"], 16384);
  EXPECT_EQ(body["eager_bytes"], 10);
  EXPECT_EQ(body["max_ops"], 3);
  EXPECT_EQ(body["cut"], 1);
  EXPECT_EQ(body["eager_form"], 1);
  EXPECT_EQ(body["rooted_form"], 1);
  EXPECT_EQ(body["lossy_min"], 99);
  EXPECT_EQ(body["op_timeout_ms"], 5000);
  EXPECT_EQ(body["verify"], true);
}

TEST_F(CoordinatorTest, ANodeThatSaysNothingOfAVersionHasTheOldOne) {
  for (const char* version : {"cut", "eager_form", "rooted_form"}) {
    const auto agreed = [&](std::int64_t a, std::int64_t b) {
      json one = join_of(kA, 0, 2), other = join_of(kB, 1, 2);
      one[version] = a;
      if (b > 0) other[version] = b;
      join(kA, one);
      join(kB, other);
      const json body = members(kA);
      say(kA, "ended", body["epoch"]);
      return body[version];
    };
    EXPECT_EQ(agreed(2, 0), 1);
    EXPECT_EQ(agreed(2, 2), 2);
    EXPECT_EQ(agreed(2, 99), 2) << "no more than the coordinator knows";
    EXPECT_EQ(agreed(-5, 2), 1);
  }
}

TEST_F(CoordinatorTest, NonsenseInAJoinIsClampedOrRefused) {
  json odd = join_of(kA, 0, 1);
  odd["lanes"] = -7;
  odd["chunk_bytes"] = "many";
  odd["max_ops"] = std::numeric_limits<std::int64_t>::max();
  odd["eager_bytes"] = -1;
  join(kA, odd);
  EXPECT_EQ(members(kA)["lanes"], 1);
  EXPECT_EQ(members(kA)["chunk_bytes"], 16 << 10);
  EXPECT_EQ(members(kA)["eager_bytes"], 0);
  for (const auto& [rank, size] : {std::pair<int, int>{-1, 2}, {2, 2}, {0, 0}, {0, 1025}}) {
    sent_.clear();
    json message = join_of(kB, 0, 1);
    message["rank"] = rank;
    message["size"] = size;
    coordinator_.on_message(kB, message);
    expect_refused(kB, Errc::invalid_argument, "rank must be");
  }
  // What the other members could not read is not handed on to them.
  for (const auto& [key, value] : {std::pair{"node", "nobody"},
                                   {"node", "0000000000000ABC0000000000000001"},
                                   {"address", "nowhere"},
                                   {"address", "host:0"}}) {
    sent_.clear();
    json message = join_of(kB, 0, 1);
    message[key] = value;
    coordinator_.on_message(kB, message);
    expect_refused(kB, Errc::protocol_error, "malformed");
  }
}

TEST_F(CoordinatorTest, AWrongSecretIsRefusedAndTheRankIsFree) {
  const json message = join_of(kA, 0, 1);
  coordinator_.on_message(kA, message);
  auto wrong = id_.secret;
  wrong[0] ^= std::byte{1};
  prove(kA, message, json(*last(kA, "challenge")), wrong);
  expect_refused(kA, Errc::bad_secret, "secret");
  join(kB, 0, 1);
  EXPECT_NE(last(kB, "members"), nullptr);
}

TEST_F(CoordinatorTest, AProofForAnotherChallengeIsNoProof) {
  const json message = join_of(kA, 0, 1);
  coordinator_.on_message(kA, message);
  const json old = *last(kA, "challenge");
  coordinator_.on_message(kA, message);  // asks again, gets another challenge
  prove(kA, message, old, id_.secret);
  expect_refused(kA, Errc::bad_secret, "");
}

// It was under way when the rank joined anew; the new join has a challenge of its own.
TEST_F(CoordinatorTest, AProofOfAnEarlierJoinIsNotTakenForOneOfTheLater) {
  const json earlier = join_of(kA, 0, 1);
  coordinator_.on_message(kA, earlier);
  const json old = *last(kA, "challenge");
  EXPECT_EQ(old["nonce"], earlier["nonce"]);
  json later = earlier;
  later["nonce"] = std::string(32, 'c');
  coordinator_.on_message(kA, later);
  prove(kA, earlier, old, id_.secret);
  EXPECT_EQ(last(kA, "refused"), nullptr);
  EXPECT_EQ(last(kA, "members"), nullptr);
  EXPECT_EQ((*last(kA, "challenge"))["nonce"], later["nonce"]);
  prove(kA, later, json(*last(kA, "challenge")), id_.secret);
  EXPECT_NE(last(kA, "members"), nullptr);
}

TEST_F(CoordinatorTest, ARankThatIsTakenIsRefused) {
  join(kA, 0, 2);
  coordinator_.on_message(kB, join_of(kB, 0, 2));
  expect_refused(kB, Errc::rank_taken, "rank 0");
  join(kB, 1, 2);
  sent_.clear();
  join(kC, 1, 2);  // in the running epoch too
  expect_refused(kC, Errc::rank_taken, "rank 1");
}

TEST_F(CoordinatorTest, WhoHasNotProvenItselfHoldsNoPlace) {
  coordinator_.on_message(kB, join_of(kB, 0, 1));
  join(kA, 0, 1);
  expect_refused(kB, Errc::rank_taken, "");
  EXPECT_NE(last(kA, "members"), nullptr);
}

TEST_F(CoordinatorTest, AnotherSizeIsRefused) {
  join(kA, 0, 2);
  join(kB, 1, 3);
  expect_refused(kB, Errc::wrong_size, "rank 1 says size 3, rank 0 says 2");
}

TEST_F(CoordinatorTest, JoinsOfAnUnknownGroupWaitUntilItIsLearnt) {
  auto other = mint_group_id("host11", 7000);
  ASSERT_TRUE(other.has_value());
  id_ = *other;
  uid_ = to_hex(id_.uid);
  const json message = join_of(kA, 0, 1);
  coordinator_.on_message(kA, message);
  EXPECT_EQ(last(kA, "challenge"), nullptr);
  coordinator_.learn(id_, kUser);
  ASSERT_NE(last(kA, "challenge"), nullptr);
  prove(kA, message, json(*last(kA, "challenge")), id_.secret);
  EXPECT_NE(last(kA, "members"), nullptr);
}

TEST_F(CoordinatorTest, WithdrawnRanksAreWaitedForAgain) {
  join(kA, 0, 2);
  withdraw(kB, join_of(kB, 0, 2));  // not its rank
  json older = join_of(kA, 0, 2);
  older["nonce"] = std::string(32, 'b');
  withdraw(kA, older);  // a join that was replaced
  join(kB, 1, 2);
  EXPECT_NE(last(kB, "members"), nullptr);
  say(kB, "ended", 1, {{"code", 7}, {"text", "over"}});
  sent_.clear();
  join(kA, 0, 2);
  withdraw(kA, join_of(kA, 0, 2));
  join(kB, 1, 2);
  EXPECT_EQ(last(kB, "members"), nullptr);
  join(kA, 0, 2);
  EXPECT_NE(last(kB, "members"), nullptr);
}

// A user's groups of which only the ids are there.
std::vector<GroupId> minted(Coordinator& coordinator, std::uint32_t user, std::size_t count) {
  std::vector<GroupId> ids;
  for (std::size_t i = 0; i < count; ++i) {
    ids.push_back(*mint_group_id("host11", 7000));
    coordinator.learn(ids.back(), user);
  }
  return ids;
}

TEST_F(CoordinatorTest, WhoMintsWithoutEndLosesHisOwnGroups) {
  const auto ids = minted(coordinator_, kUser + 1, 4'200);
  EXPECT_EQ(coordinator_.groups(), 1 + CoordinatedGroups::kPerUser);
  EXPECT_TRUE(knows(id_));
  EXPECT_FALSE(knows(ids.front()));
  EXPECT_FALSE(knows(ids[4'200 - CoordinatedGroups::kPerUser - 1]));
  EXPECT_TRUE(knows(ids[4'200 - CoordinatedGroups::kPerUser]));
  EXPECT_TRUE(knows(ids.back()));
}

TEST_F(CoordinatorTest, InAFullTableTheOldestOfTheHeaviestUserGoes) {
  const auto light = minted(coordinator_, 1, 900);
  const auto heavy = minted(coordinator_, 2, 1'023);
  minted(coordinator_, 3, 1'000);
  minted(coordinator_, 4, 1'000);
  minted(coordinator_, 5, 172);
  ASSERT_EQ(coordinator_.groups(), 4'096u);
  minted(coordinator_, 6, 1);
  EXPECT_EQ(coordinator_.groups(), 4'096u);
  EXPECT_TRUE(knows(id_));
  EXPECT_TRUE(knows(light.front()));
  EXPECT_TRUE(knows(heavy[1]));
  EXPECT_FALSE(knows(heavy[0]));
}

TEST_F(CoordinatorTest, InATableFullOfIdleGroupsAJoinOfAnotherNodeFindsAPlace) {
  for (std::uint32_t user = 1; user <= 4; ++user) minted(coordinator_, user, 1'024);
  ASSERT_EQ(coordinator_.groups(), 4'096u);
  uid_ = std::string(32, 'e');
  coordinator_.on_message(kA, join_of(kA, 0, 2));
  EXPECT_EQ(last(kA, "refused"), nullptr) << *last(kA, "refused");
  EXPECT_EQ(coordinator_.groups(), 4'096u);
}

TEST_F(CoordinatorTest, AGroupWithRanksKeepsItsPlace) {
  join(kA, 0, 2);
  const auto ids = minted(coordinator_, kUser, CoordinatedGroups::kPerUser);
  EXPECT_FALSE(knows(ids.front()));
  join(kB, 1, 2);
  EXPECT_NE(last(kB, "members"), nullptr);
}

TEST_F(CoordinatorTest, AGroupThatIsJoinedAgainIsNotTheOldest) {
  const auto ids = minted(coordinator_, kUser, CoordinatedGroups::kPerUser - 1);
  coordinator_.learn(id_, kUser + 1);  // a rank of another user joins
  minted(coordinator_, kUser, 1);
  EXPECT_TRUE(knows(id_));
  EXPECT_FALSE(knows(ids.front()));
}

// The member tells by the order what became of its join.
TEST_F(CoordinatorTest, AWithdrawalIsAnsweredAfterTheListThatItComesTooLateFor) {
  join(kA, 0, 2);
  join(kB, 1, 2);
  withdraw(kA, join_of(kA, 0, 2));
  ASSERT_FALSE(sent_.empty());
  EXPECT_EQ(sent_.back().first, kA);
  EXPECT_EQ(sent_.back().second["t"], "withdrawn");
  EXPECT_EQ(sent_.back().second["uid"], uid_);
  EXPECT_EQ(sent_.back().second["rank"], 0);
  EXPECT_EQ(sent_.back().second["nonce"], join_of(kA, 0, 2)["nonce"]);
  EXPECT_NE(last(kA, "members"), nullptr);
  EXPECT_EQ(last(kA, "end"), nullptr);
}

TEST_F(CoordinatorTest, AWithdrawalOfAnUnknownGroupIsAnsweredAndOneWithoutANonceIsNot) {
  uid_ = std::string(32, '7');
  withdraw(kA, join_of(kA, 0, 2));
  EXPECT_NE(last(kA, "withdrawn"), nullptr);
  sent_.clear();
  coordinator_.on_message(kA, {{"t", "withdraw"}, {"uid", uid_}, {"rank", 0}});
  coordinator_.on_message(
      kA, {{"t", "withdraw"}, {"uid", uid_}, {"rank", 0}, {"nonce", std::string(1000, 'a')}});
  EXPECT_TRUE(sent_.empty());
}

TEST_F(CoordinatorTest, TheEndGoesToAllAndARejoinBeginsTheNextEpoch) {
  join(kA, 0, 2);
  join(kB, 1, 2);
  say(kC, "ended", 1, {{"code", 7}, {"text", "a stranger"}});
  say(kB, "ended", 9, {{"code", 7}, {"text", "another epoch"}});
  EXPECT_EQ(last(kA, "end"), nullptr);
  say(kB, "ended", 1, {{"code", static_cast<int>(Errc::rank_lost)}, {"text", "lost rank 1"}});
  EXPECT_EQ((*last(kA, "end"))["text"], "lost rank 1");
  EXPECT_EQ((*last(kA, "end"))["code"], static_cast<int>(Errc::rank_lost));
  join(kA, 0, 2);
  join(kB, 1, 2);
  EXPECT_EQ(members(kA)["epoch"], 2);
  EXPECT_EQ(members(kA)["last_common_op"], 5);  // the least that a rank has completed
  EXPECT_EQ(members(kA)["incarnation"].get<std::string>().size(), 32u);
}

TEST_F(CoordinatorTest, WhoRejoinsBeforeTheEndIsInTheNextEpoch) {
  join(kA, 0, 2);
  join(kB, 1, 2);
  say(kA, "left", 1, {{"rank", 0}});
  join(kA, 0, 2);
  say(kB, "left", 1, {{"rank", 0}});  // not its rank
  say(kB, "left", 1, {{"rank", 1}});
  EXPECT_EQ((*last(kB, "end"))["code"], static_cast<int>(Errc::group_left));
  join(kB, 1, 2);
  EXPECT_EQ(members(kB)["epoch"], 2);
}

TEST_F(CoordinatorTest, ALostLinkEndsTheEpochAndForgetsItsJoiners) {
  join(kA, 0, 2);
  join(kB, 1, 2);
  lose(kB, "gone");
  EXPECT_EQ((*last(kA, "end"))["code"], static_cast<int>(Errc::peer_lost));
  EXPECT_NE((*last(kA, "end"))["text"].get<std::string>().find("host22:7000 (ranks 1)"),
            std::string::npos);
  join(kC, 1, 2);
  lose(kC, "gone too");
  sent_.clear();
  join(kA, 0, 2);
  EXPECT_EQ(last(kA, "members"), nullptr);
}

// The clock of a test stands still: a slice is over at once, or never.
TEST_F(CoordinatorTest, EpochsThatHaveLostANodeEndAsThereIsTimeFor) {
  constexpr int kGroups = 3;
  std::vector<GroupId> ids;
  const auto speak_of = [this](const GroupId& id) {
    id_ = id;
    uid_ = to_hex(id.uid);
  };
  for (int i = 0; i < kGroups; ++i) {
    speak_of(ids.emplace_back(*mint_group_id("host11", 7000)));
    coordinator_.learn(id_, kUser);
    join(kA, 0, 2);
    join(kB, 1, 2);
  }
  const auto ended = [this] {
    return std::count_if(sent_.begin(), sent_.end(), [](const auto& one) {
      return one.first == kA && one.second["t"] == "end";
    });
  };
  coordinator_.on_link_lost(kB, "gone");
  EXPECT_EQ(ended(), 0);
  // The group that is minted before each test hears of it too.
  for (int i = 0; i <= kGroups && ended() == 0; ++i) coordinator_.end_lost(TimeSlice(clock_, 0));
  EXPECT_EQ(ended(), 1);
  EXPECT_TRUE(coordinator_.has_lost());
  // Who comes back to a group whose turn has not come finds it ended all the same.
  const std::string first = (*last(kA, "end"))["uid"];
  speak_of(*std::find_if(ids.begin(), ids.end(),
                         [&](const GroupId& id) { return to_hex(id.uid) != first; }));
  join(kC, 1, 2);
  EXPECT_EQ(last(kC, "refused"), nullptr);
  EXPECT_EQ(ended(), 2);
  EXPECT_EQ(coordinator_.end_lost(TimeSlice(clock_, 1)), kGroups - 1) << "one has nothing left";
  EXPECT_EQ(ended(), kGroups);
  EXPECT_FALSE(coordinator_.has_lost());
}

TEST_F(CoordinatorTest, NoEpochBeginsWithARankWhoseLinkIsLost) {
  join(kA, 0, 2);
  coordinator_.on_link_lost(kA, "gone");
  join(kB, 1, 2);
  EXPECT_EQ(last(kB, "members"), nullptr) << "though the group has not heard by itself";
  join(kC, 0, 2);
  EXPECT_NE(last(kB, "members"), nullptr);
  EXPECT_NE(last(kC, "members"), nullptr);
}

TEST_F(CoordinatorTest, ARankWhoseLinkIsLostIsMissedAtOnce) {
  for (const auto& [link, rank] : {std::pair{kA, 0u}, {kB, 1u}}) join(link, rank, 3);
  sent_.clear();
  coordinator_.on_link_lost(kB, "gone");
  tell_changed();
  ASSERT_NE(last(kA, "waiting"), nullptr);
  EXPECT_EQ((*last(kA, "waiting"))["missing"], json::array({1, 2}));
}

TEST_F(CoordinatorTest, ARestartedDaemonEndsTheEpochOfTheOldOne) {
  join(kA, 0, 2);
  join(kB, 1, 2);
  json again = join_of(kC, 1, 2);
  again["address"] = address(kB);
  join(kC, again);
  EXPECT_NE((*last(kA, "end"))["text"].get<std::string>().find("restarted"), std::string::npos);
  join(kA, 0, 2);
  EXPECT_EQ(members(kA)["epoch"], 2);
}

// The epoch that begins at once is not the one that the joiner asked for.
TEST_F(CoordinatorTest, ARestartedDaemonWithAnotherSizeFindsTheNextEpochBegun) {
  join(kA, 0, 3);
  join(kB, 1, 3);
  join(kC, 2, 3);
  // Two go on without the third.
  say(kA, "left", 1, {{"rank", 0}});
  say(kB, "left", 1, {{"rank", 1}});
  join(kA, 0, 2);
  join(kB, 1, 2);
  constexpr LinkRef kRestarted = 44;
  json again = join_of(kRestarted, 2, 3);
  again["address"] = address(kC);
  join(kRestarted, again);
  EXPECT_NE(last(kC, "end"), nullptr);
  EXPECT_EQ(members(kA)["epoch"], 2);
  expect_refused(kRestarted, Errc::wrong_size, "size");
}

TEST_F(CoordinatorTest, OtherMessagesAreNotForIt) {
  EXPECT_FALSE(coordinator_.on_message(kA, {{"t", "start"}, {"uid", uid_}}));
  EXPECT_FALSE(coordinator_.on_message(kA, {{"t", "join"}, {"uid", "short"}}));
  EXPECT_FALSE(coordinator_.on_message(kA, json::object()));
  EXPECT_TRUE(
      coordinator_.on_message(kA, {{"t", "proof"}, {"uid", uid_}, {"rank", 0}, {"hmac", 7}}));
}

}  // namespace
}  // namespace tern::daemon::coordinator_test
