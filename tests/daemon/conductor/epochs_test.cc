#include "daemon/conductor/epochs.h"

#include <gmock/gmock.h>

#include "daemon/lane/eager_room.h"
#include "daemon/lane/group_bytes.h"
#include "daemon/membership/group_proofs.h"
#include "part_rig.h"
#include "tests/daemon/service/log_lines.h"

namespace tern::daemon::conductor_test {
namespace {

class EpochsTest : public PartRig {
 protected:
  void SetUp() override {
    join(1, kJoinRequest);
    join_message_ = mail("join").at(0);
  }
  // As rank 0 of a process of its own.
  void join(std::uint64_t client, std::uint64_t number) {
    JoinRequest request;
    request.packet = shm::make_packet<shm::GroupJoinPacket>(shm::PacketKind::group_join, number);
    const std::string text = format_group_id(id_);
    std::memcpy(request.packet.id, text.c_str(), text.size() + 1);
    request.packet.size = 2;
    auto packet = request.packet;
    ASSERT_TRUE(joins_.read(packet, request));
    ASSERT_TRUE(joins_.add(greet(connect(client)), request));
    nonce_ = joins_.all().at(uid_).ranks.at(0).nonce;
  }
  // A list of two nodes, this one with rank 0.
  nlohmann::json body() const {
    return {{"epoch", 1},
            {"size", 2},
            {"incarnation", std::string(32, 'a')},
            {"last_common_op", 0},
            {"lanes", kLanes},
            {"chunk_bytes", 16 << 10},
            {"eager_bytes", 1 << 10},
            {"max_ops", 16},
            {"lossy_min", 1024},
            {"op_timeout_ms", 1000},
            {"verify", false},
            {"seed", 0},
            {"nodes",
             {{{"id", node_text(self_)},
               {"address", "here:7000"},
               {"ranks", nlohmann::json::array({0})},
               {"nonces", nlohmann::json::array({nonce_})}},
              {{"id", node_text({8, 8})},
               {"address", "there:7000"},
               {"ranks", nlohmann::json::array({1})},
               {"nonces", nlohmann::json::array({std::string(32, 'b')})}}}}};
  }
  nlohmann::json members(const nlohmann::json& body) const {
    const std::string text = body.dump();
    return {
        {"t", "members"}, {"uid", uid_}, {"body", text}, {"hmac", members_proof(id_.secret, text)}};
  }
  Errc refusal() const {
    const auto answer = answer_to(kJoinRequest);
    return answer ? answer->status : Errc::ok;
  }

  static constexpr std::uint64_t kJoinRequest = 500;
  const GroupId id_ = *mint_group_id("here", 7000);
  const std::string uid_ = to_hex(id_.uid);
  std::string nonce_;
  nlohmann::json join_message_;
  Epochs epochs_{settings_, outlets_, {clients_, joins_, groups_, quotas_, nullptr}};
};

TEST_F(EpochsTest, AListOfMembersMakesAGroupOfTheJoins) {
  EXPECT_TRUE(epochs_.on_message(kSelf, members(body())));
  EXPECT_TRUE(joins_.all().empty());
  ASSERT_EQ(groups_.all().size(), 1u);
  const MemberGroup& group = *groups_.all().begin()->second;
  EXPECT_EQ(group.uid, uid_);
  EXPECT_EQ(group.node, 0u);
  EXPECT_EQ(group.job, "job");
  ASSERT_EQ(group.lanes.size(), kLanes);
  EXPECT_EQ(group.lanes[0]->setup().endpoints.at(1).user, clients_.at(1).credentials.uid);
  EXPECT_EQ(refusal(), Errc::ok);
}

TEST_F(EpochsTest, AListThatIsNotProvenIsRefused) {
  auto forged = members(body());
  forged["hmac"] = std::string(64, '0');
  EXPECT_TRUE(epochs_.on_message(kSelf, forged));
  EXPECT_EQ(refusal(), Errc::rank_lost);
  EXPECT_TRUE(groups_.all().empty());
  EXPECT_EQ(counters_->bad_control_messages, 1u);
  EXPECT_EQ(mail("ended").size(), 1u);
}

TEST_F(EpochsTest, AListThisNodeCannotWorkWithIsRefused) {
  auto lanes = body();
  lanes["lanes"] = kLanes + 1;
  EXPECT_TRUE(epochs_.on_message(kSelf, members(lanes)));
  EXPECT_EQ(refusal(), Errc::protocol_error);
  EXPECT_TRUE(groups_.all().empty());
}

TEST_F(EpochsTest, ARefusedListIsALineAboutTheGroupsOfItsUser) {
  auto lanes = body();
  lanes["lanes"] = kLanes + 1;
  for (int i = 0; i < 128; ++i) log_.write({LogTopic::groups, 1000}, "all lines at once");
  const LogLines lines;
  EXPECT_TRUE(epochs_.on_message(kSelf, members(lanes)));
  log_.tell_left_out();
  ASSERT_EQ(lines.seen().size(), 2u) << "one is about the join, and has a limit of its own";
  EXPECT_EQ(lines.seen().back(), "1 more lines about groups were left out: uid 1000");
}

TEST_F(EpochsTest, AListWithACutThisNodeDoesNotHaveIsRefused) {
  auto later = body();
  later["cut"] = settings_.ops.cut + 1;
  EXPECT_TRUE(epochs_.on_message(kSelf, members(later)));
  EXPECT_EQ(refusal(), Errc::protocol_error);
}

TEST_F(EpochsTest, AListWithAnEagerFormThisNodeDoesNotHaveIsRefused) {
  auto later = body();
  later["eager_form"] = settings_.ops.eager_form + 1;
  EXPECT_TRUE(epochs_.on_message(kSelf, members(later)));
  EXPECT_EQ(refusal(), Errc::protocol_error);
}

TEST_F(EpochsTest, TheEagerFormIsThatOfTheListOrElseTheFirst) {
  EXPECT_EQ(join_message_["eager_form"], 3);
  auto agreed = body();
  agreed["eager_form"] = 2;
  epochs_.on_message(kSelf, members(agreed));
  const MemberGroup& group = *groups_.all().begin()->second;
  EXPECT_EQ(group.eager_form, collective::EagerForm::blocks);
  EXPECT_EQ(group.lanes[0]->setup().shape.eager_form, collective::EagerForm::blocks);
}

TEST_F(EpochsTest, WithoutAnEagerFormInTheListThereAreNoBlocksInAnnouncements) {
  epochs_.on_message(kSelf, members(body()));
  EXPECT_EQ(groups_.all().begin()->second->eager_form, collective::EagerForm::elements);
}

TEST_F(EpochsTest, AListWithARootedFormThisNodeDoesNotHaveIsRefused) {
  auto later = body();
  later["rooted_form"] = settings_.ops.rooted_form + 1;
  EXPECT_TRUE(epochs_.on_message(kSelf, members(later)));
  EXPECT_EQ(refusal(), Errc::protocol_error);
}

TEST_F(EpochsTest, TheRootedFormIsThatOfTheList) {
  EXPECT_EQ(join_message_["rooted_form"], 2);
  auto agreed = body();
  agreed["rooted_form"] = 2;
  epochs_.on_message(kSelf, members(agreed));
  EXPECT_EQ(groups_.all().begin()->second->lanes[0]->setup().shape.rooted_form,
            collective::RootedForm::relayed);
}

TEST_F(EpochsTest, WithoutARootedFormInTheListNothingIsRelayed) {
  epochs_.on_message(kSelf, members(body()));
  EXPECT_EQ(groups_.all().begin()->second->lanes[0]->setup().shape.rooted_form,
            collective::RootedForm::direct);
}

TEST_F(EpochsTest, TheCutIsThatOfTheListOrElseTheFirst) {
  EXPECT_EQ(join_message_["cut"], 3);
  auto agreed = body();
  agreed["cut"] = 2;
  epochs_.on_message(kSelf, members(agreed));
  const MemberGroup& group = *groups_.all().begin()->second;
  EXPECT_EQ(group.cut, shm::CutVersion::even);
  EXPECT_EQ(group.lanes[0]->setup().shape.cut, shm::CutVersion::even);
}

TEST_F(EpochsTest, AListOfAnEarlierJoinEndsTheEpochAndLeavesTheJoin) {
  auto stale = body();
  stale["nodes"][0]["nonces"] = nlohmann::json::array({std::string(32, 'c')});
  EXPECT_TRUE(epochs_.on_message(kSelf, members(stale)));
  EXPECT_EQ(joins_.all().size(), 1u);
  const auto sent = mail("ended");
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0]["code"], static_cast<int>(Errc::rank_lost));
}

TEST_F(EpochsTest, TooManyLinksAreAQuotaOfThisNode) {
  settings_.limits.max_links_per_user = 1;
  EXPECT_TRUE(epochs_.on_message(kSelf, members(body())));
  EXPECT_EQ(refusal(), Errc::quota_exceeded);
  EXPECT_EQ(counters_->quota_refusals, 1u);
}

// A list of members may name many nodes that nobody has seen.
TEST_F(EpochsTest, WhatIsKeptOfAGroupIsItsUsersMemory) {
  settings_.limits.max_memory_bytes = 1 << 30;
  add_group({1}).memory_bytes = 256 << 20;  // all that a user's groups may take there
  EXPECT_TRUE(epochs_.on_message(kSelf, members(body())));
  EXPECT_EQ(refusal(), Errc::quota_exceeded);
  EXPECT_EQ(groups_.all().size(), 1u);
}

TEST_F(EpochsTest, AGroupKnowsWhatIsKeptOfIt) {
  epochs_.on_message(kSelf, members(body()));
  const MemberGroup& group = *groups_.all().begin()->second;
  const collective::GroupShape& shape = group.lanes[0]->setup().shape;
  // Two nodes: 16 places here and 32 there of a KiB, and 32 for sends.
  EXPECT_GE(EagerRoom::bytes_for(shape), 80u << 10);
  EXPECT_EQ(group.memory_bytes,
            group.lanes.size() * (group_bytes(shape) + EagerRoom::bytes_for(shape)));
}

// As where others have taken all that the kernel maps for a process.
TEST_F(EpochsTest, AGroupWhoseRoomCannotBeMappedIsRefusedAndNoOther) {
  settings_.ops.eager_bytes = settings_.ops.chunk_bytes = std::uint64_t{1} << 50;
  MemberGroup& other = add_group({1});
  auto large = body();
  large["eager_bytes"] = std::uint64_t{1} << 50;
  EXPECT_TRUE(epochs_.on_message(kSelf, members(large)));
  EXPECT_EQ(refusal(), Errc::out_of_memory);
  EXPECT_THAT(answer_to(kJoinRequest)->text,
              testing::AllOf(testing::HasSubstr("no room for small operations"),
                             testing::EndsWith("max_ops_in_flight or eager_bytes")));
  EXPECT_TRUE(joins_.all().empty());
  const auto sent = mail("ended");
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0]["code"], static_cast<int>(Errc::out_of_memory));
  EXPECT_EQ(groups_.all().size(), 1u);
  EXPECT_FALSE(other.has_ended());
}

TEST_F(EpochsTest, StartAndEndAreTheCoordinatorsToSay) {
  epochs_.on_message(kSelf, members(body()));
  MemberGroup& group = *groups_.all().begin()->second;
  const nlohmann::json start = {{"t", "start"}, {"uid", uid_}, {"epoch", 1}};
  EXPECT_TRUE(epochs_.on_message(kSelf + 1, start));
  EXPECT_EQ(group.phase, MemberGroup::Phase::starting);
  EXPECT_TRUE(epochs_.on_message(kSelf, start));
  EXPECT_EQ(group.phase, MemberGroup::Phase::running);
  EXPECT_TRUE(epochs_.on_message(kSelf, {{"t", "end"},
                                         {"uid", uid_},
                                         {"epoch", 1},
                                         {"code", static_cast<int>(Errc::peer_lost)},
                                         {"text", "lost"}}));
  EXPECT_EQ(group.end_code, Errc::peer_lost);
}

// A coordinator that is restarted counts from 1 again, and one that had to forget the group, too.
// Meanwhile a rank hangs in the epoch of before, and another process has joined in its place.
class EpochsOfOneNumber : public EpochsTest {
 protected:
  // Returns the epoch of before.
  MemberGroup& begin_twice() {
    epochs_.on_message(kSelf, members(body()));
    MemberGroup& before = *groups_.all().begin()->second;
    groups_.start(before);
    join(2, kJoinRequest + 1);
    epochs_.on_message(kSelf, members(body()));
    EXPECT_EQ(groups_.all().size(), 2u);
    return before;
  }
  void expect_start_and_end_of_the_second() {
    const MemberGroup& second = *groups_.all().rbegin()->second;
    epochs_.on_message(kSelf, {{"t", "start"}, {"uid", uid_}, {"epoch", 1}});
    EXPECT_EQ(second.phase, MemberGroup::Phase::running);
    epochs_.on_message(kSelf, {{"t", "end"},
                               {"uid", uid_},
                               {"epoch", 1},
                               {"code", static_cast<int>(Errc::group_left)},
                               {"text", "left"}});
    EXPECT_EQ(second.end_code, Errc::group_left);
  }
};

TEST_F(EpochsOfOneNumber, OneThatHasEndedHearsNothingMore) {
  MemberGroup& before = begin_twice();
  groups_.end(before, Errc::peer_lost, "lost", false);
  expect_start_and_end_of_the_second();
  EXPECT_EQ(before.end_code, Errc::peer_lost);
}

TEST_F(EpochsOfOneNumber, OneOfALinkThatIsLostHearsNothingOfTheNextLink) {
  MemberGroup& before = begin_twice();
  before.coordinator = kSelf + 1;  // and has not ended yet
  expect_start_and_end_of_the_second();
  EXPECT_FALSE(before.has_ended());
}

TEST_F(EpochsTest, OtherMessagesAreNotForMembers) {
  EXPECT_FALSE(epochs_.on_message(kSelf, {{"t", "proof"}}));
}

}  // namespace
}  // namespace tern::daemon::conductor_test
