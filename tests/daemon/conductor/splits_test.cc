#include "daemon/conductor/splits.h"

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class SplitsTest : public PartRig {
 protected:
  SplitsTest() {
    greet(connect(1));
    greet(connect(2));
    parent_ = &add_group({1, 2});
    parent_->incarnation = "f00d";
    for (MemberRank& rank : parent_->ranks) rank.phase = MemberRank::Phase::joined;
  }
  std::uint64_t split(std::uint64_t client, std::int32_t color, std::uint64_t group) {
    auto packet = shm::make_packet<shm::GroupSplitPacket>(shm::PacketKind::group_split, ++request_);
    packet.group = group;
    packet.color = color;
    packet.key = 7;
    splits_.begin(clients_.at(client), packet);
    return request_;
  }
  // The coordinator's answer to a join message.
  nlohmann::json divided(const nlohmann::json& join, std::int64_t place, std::int64_t size) {
    return {{"t", "divided"},
            {"uid", join["uid"]},
            {"rank", join["rank"]},
            {"nonce", join["nonce"]},
            {"parent", parent_->uid},
            {"epoch", 1},
            {"sequence", join["split"]["sequence"]},
            {"place", place},
            {"size", size}};
  }

  Coordinator coordinator_{post_, clock_};
  Drain drain_{clock_, self_, {clients_, joins_, groups_, coordinator_}};
  Splits splits_{outlets_, {clients_, joins_, groups_, drain_, quotas_, refusals_}};
  MemberGroup* parent_ = nullptr;
  std::uint64_t request_ = 40;
};

TEST_F(SplitsTest, AreAskedOfTheParentsCoordinator) {
  split(2, 3, parent_->number);
  const auto sent = mail("join");
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0]["uid"], to_hex(gathering_id(parent_->id, {1, "f00d", 0}).uid));
  EXPECT_EQ(sent[0]["rank"], 1);
  EXPECT_EQ(sent[0]["size"], 3);
  EXPECT_EQ(sent[0]["split"]["parent"], parent_->uid);
  EXPECT_EQ(sent[0]["split"]["color"], 3);
  EXPECT_EQ(sent[0]["split"]["key"], 7);
}

TEST_F(SplitsTest, AreForMembersOfAGroupThatLives) {
  EXPECT_EQ(answer_to(split(1, 0, 999))->status, Errc::unknown_group);
  greet(connect(3));
  EXPECT_EQ(answer_to(split(3, 0, parent_->number))->status, Errc::unknown_group);
  groups_.end(*parent_, Errc::peer_lost, "node 1 is gone", false);
  const auto told = answer_to(split(1, 0, parent_->number));
  EXPECT_EQ(told->status, Errc::peer_lost);
  EXPECT_EQ(told->text, "node 1 is gone");
  EXPECT_TRUE(mail("join").empty());
}

TEST_F(SplitsTest, OfOneProcessAreOneAtATime) {
  split(1, 0, parent_->number);
  EXPECT_EQ(answer_to(split(1, 0, parent_->number))->status, Errc::invalid_argument);
}

TEST_F(SplitsTest, BecomeAJoinToTheChild) {
  const std::uint64_t request = split(2, 3, parent_->number);
  const auto join = mail("join").at(0);
  EXPECT_TRUE(splits_.on_message(kSelf, divided(join, 0, 2)));
  ASSERT_EQ(joins_.all().size(), 1u);
  const GroupId child = child_id(gathering_id(parent_->id, {1, "f00d", 0}), 3);
  const JoinSet& set = joins_.all().at(to_hex(child.uid));
  EXPECT_EQ(set.id, child);
  EXPECT_EQ(set.lineage, "0:3/");
  EXPECT_TRUE(set.waits(0, join["nonce"]));
  EXPECT_EQ(set.ranks.at(0).request, request);
  EXPECT_FALSE(answer_to(request));
  EXPECT_EQ(parent_->ranks[1].splits, 1);
  EXPECT_EQ(parent_->ranks[0].splits, 0);
}

TEST_F(SplitsTest, ChildrenCountAgainstTheQuota) {
  settings_.limits.max_groups_per_user = 2;
  const std::uint64_t first = split(1, 0, parent_->number);
  const std::uint64_t second = split(2, 1, parent_->number);
  const auto joins = mail("join");
  splits_.on_message(kSelf, divided(joins.at(0), 0, 1));
  splits_.on_message(kSelf, divided(joins.at(1), 0, 2));
  ASSERT_TRUE(answer_to(first));
  EXPECT_EQ(answer_to(first)->status, Errc::quota_exceeded);
  EXPECT_FALSE(answer_to(second)) << "the parent and one child are as many as there may be";
}

TEST_F(SplitsTest, OfANegativeColourAreAnsweredAtOnce) {
  const std::uint64_t request = split(1, -2, parent_->number);
  splits_.on_message(kSelf, divided(mail("join").at(0), 0, 1));
  ASSERT_TRUE(answer_to(request));
  EXPECT_EQ(answer_to(request)->kind, shm::PacketKind::group_split_reply);
  EXPECT_TRUE(joins_.all().empty());
}

// All ranks count alike, so that the next split of all is the same one.
TEST_F(SplitsTest, AreCountedAlsoWhereTheJoinHasGone) {
  split(1, 0, parent_->number);
  const auto join = mail("join").at(0);
  joins_.drop_client(1);
  splits_.on_message(kSelf, divided(join, 0, 3));
  EXPECT_EQ(parent_->ranks[0].splits, 1);
  splits_.on_message(kSelf, divided(join, 0, 3));
  EXPECT_EQ(parent_->ranks[0].splits, 1) << "once";
}

TEST_F(SplitsTest, NonsenseOfACoordinatorIsRefused) {
  for (const auto& [place, size] : {std::pair<int, int>{-1, 2}, {2, 2}, {0, 0}, {0, 1025}}) {
    const std::uint64_t request = split(1, 0, parent_->number);
    const auto join = mail("join").at(0);
    auto message = divided(join, place, size);
    message["sequence"] = 99;
    EXPECT_TRUE(splits_.on_message(kSelf, message));
    EXPECT_EQ(answer_to(request)->status, Errc::protocol_error);
  }
  EXPECT_TRUE(joins_.all().empty());
  split(1, 0, parent_->number);
  const auto join = mail("join").at(0);
  EXPECT_TRUE(splits_.on_message(kSelf + 1, divided(join, 0, 1))) << "not from this coordinator";
  EXPECT_TRUE(splits_.on_message(kSelf, {{"t", "divided"}}));
  EXPECT_FALSE(splits_.on_message(kSelf, {{"t", "other"}}));
  EXPECT_EQ(joins_.all().begin()->first, join["uid"]);
}

// Mallory's coordinator would give a second rank the place of the first.
TEST_F(SplitsTest, APlaceIsGivenOnce) {
  const std::uint64_t first = split(1, 0, parent_->number);
  split(2, 0, parent_->number);
  const auto joins = mail("join");
  splits_.on_message(kSelf, divided(joins.at(0), 0, 2));
  splits_.on_message(kSelf, divided(joins.at(1), 0, 2));
  EXPECT_EQ(answer_to(first)->status, Errc::protocol_error);
  const GroupId child = child_id(gathering_id(parent_->id, {1, "f00d", 0}), 0);
  EXPECT_TRUE(joins_.all().at(to_hex(child.uid)).waits(0, joins.at(1)["nonce"]));
}

}  // namespace
}  // namespace tern::daemon::conductor_test
