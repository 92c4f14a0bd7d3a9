#include <set>
#include <utility>
#include <vector>

#include "coordinator_rig.h"
#include "daemon/membership/coordinator.h"
#include "daemon/membership/group_split.h"

namespace tern::daemon::coordinator_test {
namespace {

// A group of three ranks, two of them on A, whose epoch is under way.
class CoordinatorSplits : public CoordinatorTest {
 protected:
  void SetUp() override {
    CoordinatorTest::SetUp();
    join(kA, 0, 3);
    join(kA, 1, 3);
    join(kB, 2, 3);
    incarnation_ = members(kA)["incarnation"];
    say(kA, "ready", 1);
    say(kB, "ready", 1);
    sent_.clear();
  }

  GroupId gathering(std::int64_t sequence) const {
    return gathering_id(id_, {1, incarnation_, sequence});
  }
  // What a rank of a daemon says that splits for the n-th time.
  json split_of(LinkRef from, std::uint32_t rank, std::int64_t color, std::int64_t sequence = 0) {
    json message = join_of(from, rank, 3);
    message["uid"] = to_hex(gathering(sequence).uid);
    message["split"] = {
        {"parent", uid_}, {"epoch", 1}, {"sequence", sequence}, {"color", color}, {"key", 0}};
    return message;
  }
  // Asks, and proves what `proven` says.
  void split(LinkRef from, const json& message, const json& proven) {
    coordinator_.on_message(from, message);
    const json* const challenge = last(from, "challenge");
    ASSERT_NE(challenge, nullptr);
    const json& terms = proven["split"];
    const std::string proof =
        join_proof(gathering(terms["sequence"]).secret,
                   {message["uid"], message["nonce"], (*challenge)["challenge"], message["node"],
                    message["rank"], message["size"],
                    text_of(SplitTerms{terms["parent"], terms["epoch"], terms["sequence"],
                                       terms["color"], terms["key"]})});
    coordinator_.on_message(from, {{"t", "proof"},
                                   {"uid", message["uid"]},
                                   {"rank", message["rank"]},
                                   {"nonce", message["nonce"]},
                                   {"hmac", proof}});
    if (begins_at_once_) begin_children();
  }
  void split(LinkRef from, std::uint32_t rank, std::int64_t color, std::int64_t sequence = 0) {
    const json message = split_of(from, rank, color, sequence);
    split(from, message, message);
  }
  void refused(LinkRef from, const json& message, Errc code, const std::string& word) {
    sent_.clear();
    coordinator_.on_message(from, message);
    expect_refused(from, code, word);
  }
  std::string child_uid(std::int64_t color) { return to_hex(child_id(gathering(0), color).uid); }
  int begin_children() { return coordinator_.begin_children(TimeSlice(clock_, 1)); }
  // The clock of a test stands still: this slice is over at once.
  int begin_child() { return coordinator_.begin_children(TimeSlice(clock_, 0)); }
  std::vector<json> all(LinkRef to, const std::string& type) const {
    std::vector<json> found;
    for (const auto& [link, message] : sent_) {
      if (link == to && message["t"] == type) found.push_back(message);
    }
    return found;
  }

  std::string incarnation_;
  bool begins_at_once_ = true;  // what a split makes
};

TEST_F(CoordinatorSplits, EachColourBecomesAGroupWhenTheLastRankHasCome) {
  split(kA, 0, 5);
  split(kB, 2, 5);
  EXPECT_TRUE(all(kB, "divided").empty());
  tell_changed();
  EXPECT_EQ((*last(kB, "waiting"))["missing"], json::array({1}));
  split(kA, 1, 0);
  ASSERT_EQ(all(kA, "divided").size(), 2u);
  ASSERT_EQ(all(kB, "divided").size(), 1u);
  EXPECT_EQ(all(kB, "divided")[0]["place"], 1);
  EXPECT_EQ(all(kB, "divided")[0]["size"], 2);
  const auto lists = all(kA, "members");
  ASSERT_EQ(lists.size(), 2u);
  const json alone = json::parse(lists[0]["body"].get<std::string>());
  EXPECT_EQ(lists[0]["uid"], child_uid(0));
  EXPECT_EQ(alone["size"], 1);
  const json both = members(kB);
  EXPECT_EQ(both["uid"], child_uid(5));
  EXPECT_EQ(both["epoch"], 1);
  EXPECT_EQ(both["nodes"][0]["ranks"], json::array({0}));
  EXPECT_EQ(both["nodes"][1]["ranks"], json::array({1}));
  EXPECT_EQ((*last(kB, "members"))["hmac"],
            members_proof(child_id(gathering(0), 5).secret, (*last(kB, "members"))["body"]));
}

TEST_F(CoordinatorSplits, NegativeColoursAreTold) {
  split(kA, 0, -1);
  split(kA, 1, -9);
  split(kB, 2, 0);
  EXPECT_EQ(all(kA, "divided").size(), 2u);
  EXPECT_TRUE(all(kA, "members").empty());
  EXPECT_EQ(members(kB)["size"], 1);
}

TEST_F(CoordinatorSplits, OnlyTheNodeOfARankSpeaksForIt) {
  refused(kB, split_of(kB, 0, 1), Errc::permission_denied, "rank 0 of this node is not in");
  refused(kC, split_of(kC, 2, 1), Errc::permission_denied, "rank 2 of this node is not in");
  say(kB, "left", 1, {{"rank", 2}});
  refused(kB, split_of(kB, 2, 1), Errc::permission_denied, "not in the group");
  EXPECT_EQ(coordinator_.groups(), 1u);
}

TEST_F(CoordinatorSplits, AnotherSizeEpochOrParentIsRefused) {
  json message = split_of(kA, 0, 1);
  message["size"] = 2;
  refused(kA, message, Errc::permission_denied, "not in the group");
  message = split_of(kA, 0, 1);
  message["split"]["epoch"] = 2;
  refused(kA, message, Errc::epoch_ended, "has ended");
  message = split_of(kA, 0, 1);
  message["split"]["parent"] = std::string(32, '0');
  refused(kA, message, Errc::epoch_ended, "has ended");
  message["split"] = "all";
  refused(kA, message, Errc::protocol_error, "malformed");
}

TEST_F(CoordinatorSplits, AnIdThatIsNotDerivedIsRefused) {
  json message = split_of(kA, 0, 1);
  message["uid"] = to_hex(gathering(1).uid);
  refused(kA, message, Errc::bad_secret, "not derived");
  incarnation_ = "another";
  refused(kA, split_of(kA, 0, 1), Errc::bad_secret, "not derived");
  EXPECT_EQ(coordinator_.groups(), 1u);
}

// A daemon that says other numbers would have a gathering for each of them.
TEST_F(CoordinatorSplits, OfAGroupOneGatheringIsThereAtATime) {
  for (std::int64_t sequence = 1; sequence < 100; ++sequence) {
    refused(kA, split_of(kA, 0, 1, sequence), Errc::protocol_error, "been split 0 times");
  }
  EXPECT_EQ(coordinator_.groups(), 1u);
  for (const auto& [link, rank] : {std::pair{kA, 0u}, {kA, 1u}, {kB, 2u}}) split(link, rank, 1);
  refused(kA, split_of(kA, 0, 1, 0), Errc::protocol_error, "been split 1 times");
  split(kA, 0, 1, 1);
  EXPECT_EQ(coordinator_.groups(), 3u);
}

TEST_F(CoordinatorSplits, TheNextEpochBeginsToCountAnew) {
  for (const auto& [link, rank] : {std::pair{kA, 0u}, {kA, 1u}, {kB, 2u}}) split(link, rank, 1);
  say(kA, "ended", 1, {{"code", 1}, {"text", "over"}});
  join(kA, 0, 3);
  join(kA, 1, 3);
  join(kB, 2, 3);
  EXPECT_NE(members(kA)["incarnation"], incarnation_);
  incarnation_ = members(kA)["incarnation"];
  say(kA, "ready", 2);
  say(kB, "ready", 2);
  json message = split_of(kA, 0, 1);
  message["uid"] = to_hex(gathering_id(id_, {2, incarnation_, 0}).uid);
  message["split"]["epoch"] = 2;
  sent_.clear();
  coordinator_.on_message(kA, message);
  EXPECT_NE(last(kA, "challenge"), nullptr);
}

// Children are never idle: what splits without end takes as many as one user may have, also before
// they begin.
TEST_F(CoordinatorSplits, ChildrenOfAUserHaveABound) {
  begins_at_once_ = false;
  constexpr std::int64_t kSplits = CoordinatedGroups::kPerUserWhoSplits / 3;
  for (std::int64_t sequence = 0; sequence < kSplits; ++sequence) {
    for (const auto& [link, rank] : {std::pair{kA, 0u}, {kA, 1u}, {kB, 2u}}) {
      split(link, rank, rank, sequence);
    }
    sent_.clear();
  }
  for (const auto& [link, rank] : {std::pair{kA, 0u}, {kA, 1u}, {kB, 2u}}) {
    split(link, rank, rank, kSplits);
  }
  expect_refused(kA, Errc::quota_exceeded, "no room for 3 more");
  expect_refused(kB, Errc::quota_exceeded, "no room for 3 more");
  EXPECT_EQ(begin_children(), 3 * kSplits);
  EXPECT_GT(coordinator_.groups(), CoordinatedGroups::kPerUserWhoSplits - 3);
  EXPECT_LE(coordinator_.groups(), CoordinatedGroups::kPerUserWhoSplits);
}

// A split of the largest group into single ranks has a thousand of them.
class ChildrenToBegin : public CoordinatorSplits {
 protected:
  void SetUp() override {
    CoordinatorSplits::SetUp();
    begins_at_once_ = false;
    split_all(0);
  }
  // Into single ranks.
  void split_all(std::int64_t sequence) {
    for (const auto& [link, rank] : {std::pair{kA, 0u}, {kA, 1u}, {kB, 2u}}) {
      split(link, rank, rank, sequence);
    }
  }
  std::size_t divided() const { return all(kA, "divided").size() + all(kB, "divided").size(); }
};

TEST_F(ChildrenToBegin, BeginAsThereIsTimeFor) {
  EXPECT_EQ(divided(), 0u);
  EXPECT_EQ(coordinator_.groups(), 1u);
  EXPECT_TRUE(coordinator_.has_children_to_begin());
  EXPECT_EQ(begin_child(), 1);
  EXPECT_EQ(divided(), 1u);
  EXPECT_EQ(coordinator_.groups(), 2u);
  EXPECT_EQ(begin_children(), 2);
  EXPECT_EQ(divided(), 3u);
  EXPECT_EQ(coordinator_.groups(), 4u);
  EXPECT_FALSE(coordinator_.has_children_to_begin());
  EXPECT_EQ(begin_children(), 0);
}

TEST_F(ChildrenToBegin, BeginOfEachSplitInTurn) {
  split_all(1);
  sent_.clear();
  EXPECT_EQ(begin_child(), 1);
  EXPECT_EQ(begin_child(), 1);
  const auto said = all(kA, "divided");
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0]["sequence"], 0);
  EXPECT_EQ(said[1]["sequence"], 1);
  EXPECT_EQ(begin_children(), 4);
}

// What a rank hears after a withdrawal it may take for what became of another.
TEST_F(ChildrenToBegin, BeginBeforeAWithdrawalIsAnswered) {
  const json message = split_of(kA, 1, 1);
  sent_.clear();
  coordinator_.on_message(
      kA, {{"t", "withdraw"}, {"uid", message["uid"]}, {"rank", 1}, {"nonce", message["nonce"]}});
  ASSERT_EQ(sent_.size(), 3u);
  EXPECT_EQ(sent_[0].second["t"], "divided");
  EXPECT_EQ(sent_[1].second["t"], "members");
  EXPECT_EQ(sent_[1].second["uid"], child_uid(1));
  EXPECT_EQ(sent_[2].second["t"], "withdrawn");
  EXPECT_EQ(begin_children(), 2) << "the others";
}

TEST_F(ChildrenToBegin, EndAtOnceIfANodeIsLostBefore) {
  EXPECT_EQ(begin_child(), 1);
  EXPECT_EQ(begin_child(), 1);
  lose(kB, "broken");
  EXPECT_EQ(coordinator_.groups(), 3u) << "the parent and two children of the other node";
  EXPECT_EQ(begin_children(), 1);
  EXPECT_EQ(members(kB)["uid"], child_uid(2));
  EXPECT_TRUE(coordinator_.has_lost());
  EXPECT_EQ(coordinator_.end_lost(TimeSlice(clock_, 1)), 1);
  EXPECT_EQ((*last(kB, "end"))["uid"], child_uid(2));
  EXPECT_EQ(coordinator_.groups(), 3u);
}

TEST_F(ChildrenToBegin, KeepTheLinksOfTheirRanks) {
  say(kA, "ended", 1, {{"code", 1}, {"text", "over"}});
  std::set<LinkRef> links;
  coordinator_.add_links(links);
  EXPECT_EQ(links, (std::set<LinkRef>{kA, kB}));
  EXPECT_EQ(coordinator_.groups_of_others(), 1u);
  EXPECT_EQ(begin_children(), 3) << "they do not need their parent";
}

TEST_F(CoordinatorSplits, AColourThatWasChangedOnTheWayIsNotProven) {
  split(kA, split_of(kA, 0, 1), split_of(kA, 0, 2));
  expect_refused(kA, Errc::bad_secret, "secret is wrong");
}

TEST_F(CoordinatorSplits, NobodyElseJoinsWhatGathersOrAChild) {
  split(kA, 0, 1);
  json outsider = split_of(kC, 1, 1);
  outsider.erase("split");
  refused(kC, outsider, Errc::permission_denied, "has come of a split");
  split(kA, 1, 1);
  split(kB, 2, 1);
  outsider["uid"] = child_uid(1);
  refused(kC, outsider, Errc::permission_denied, "has come of a split");
}

TEST_F(CoordinatorSplits, WhoJoinsTheIdBeforeTheSplitIsPutOut) {
  json early = split_of(kC, 1, 1);
  early.erase("split");
  coordinator_.on_message(kC, early);
  early["uid"] = child_uid(1);
  coordinator_.on_message(kC, early);
  EXPECT_TRUE(all(kC, "refused").empty());
  for (const auto& [link, rank] : {std::pair{kA, 0u}, {kA, 1u}, {kB, 2u}}) split(link, rank, 1);
  ASSERT_EQ(all(kC, "refused").size(), 2u);
  for (const json& refusal : all(kC, "refused")) {
    EXPECT_EQ(refusal["code"], static_cast<int>(Errc::permission_denied));
  }
  EXPECT_EQ(members(kB)["size"], 3);
  EXPECT_TRUE(all(kC, "members").empty());
}

TEST_F(CoordinatorSplits, AChildGoesWithItsEpoch) {
  for (const auto& [link, rank] : {std::pair{kA, 0u}, {kA, 1u}, {kB, 2u}}) split(link, rank, rank);
  EXPECT_EQ(coordinator_.groups(), 4u);
  sent_.clear();
  coordinator_.on_message(kB, {{"t", "ended"},
                               {"uid", child_uid(2)},
                               {"epoch", 1},
                               {"code", static_cast<int>(Errc::rank_lost)},
                               {"text", "gone"}});
  EXPECT_NE(last(kB, "end"), nullptr);
  EXPECT_EQ(last(kA, "end"), nullptr) << "it fails alone";
  EXPECT_EQ(coordinator_.groups(), 3u);
  lose(kA, "broken");
  EXPECT_EQ(coordinator_.groups(), 1u) << "the parent, which may be joined again";
}

TEST_F(CoordinatorSplits, WhoGathersWhileTheParentEndsIsTold) {
  split(kA, 0, 1);
  lose(kB, "broken");
  expect_refused(kA, Errc::peer_lost, "was lost");
  EXPECT_EQ(coordinator_.groups(), 1u);
}

TEST_F(CoordinatorSplits, WhoSplitsBeforeHearingOfTheEndIsToldWhy) {
  lose(kB, "broken");
  refused(kA, split_of(kA, 0, 1), Errc::peer_lost, "was lost");
  join(kA, 0, 1);
  say(kA, "ready", 2);
  refused(kA, split_of(kA, 0, 1), Errc::epoch_ended, "has ended");
}

TEST_F(CoordinatorSplits, WhatNobodyWaitsForIsForgotten) {
  split(kA, 0, 1);
  EXPECT_EQ(coordinator_.groups(), 2u);
  const json message = split_of(kA, 0, 1);
  coordinator_.on_message(
      kA, {{"t", "withdraw"}, {"uid", message["uid"]}, {"rank", 0}, {"nonce", message["nonce"]}});
  EXPECT_EQ(coordinator_.groups(), 1u);
}

TEST_F(CoordinatorSplits, TheNextSplitIsAnother) {
  for (const std::int64_t sequence : {0, 1}) {
    for (const auto& [link, rank] : {std::pair{kA, 0u}, {kA, 1u}, {kB, 2u}}) {
      split(link, rank, 0, sequence);
    }
  }
  const auto lists = all(kB, "members");
  ASSERT_EQ(lists.size(), 2u);
  EXPECT_NE(lists[0]["uid"], lists[1]["uid"]);
}

}  // namespace
}  // namespace tern::daemon::coordinator_test
