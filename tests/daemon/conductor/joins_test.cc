#include "daemon/conductor/joins.h"

#include <algorithm>

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class JoinsTest : public PartRig {
 protected:
  shm::GroupJoinPacket packet_of(const GroupId& id, std::int32_t rank) {
    auto packet = shm::make_packet<shm::GroupJoinPacket>(shm::PacketKind::group_join, ++request_);
    const std::string text = format_group_id(id);
    std::memcpy(packet.id, text.c_str(), text.size() + 1);
    packet.rank = rank;
    packet.size = 4;
    packet.timeout_ms = 1000;
    return packet;
  }
  bool join(const Client& client, std::int32_t rank) {
    JoinRequest request;
    EXPECT_TRUE(joins_.read(packet_of(id_, rank), request));
    return joins_.add(client, request);
  }
  // What a coordinator says of the join of rank 0.
  nlohmann::json about(const char* type, const nlohmann::json& more) {
    nlohmann::json message = {{"t", type},
                              {"uid", to_hex(id_.uid)},
                              {"rank", 0},
                              {"nonce", joins_.all().at(to_hex(id_.uid)).ranks.at(0).nonce}};
    message.update(more);
    return message;
  }
  Errc refusal() const { return answer_to(request_)->status; }
  // Who opens one now gets another.
  void lose_links() {
    links_.say_goodbye();
    links_.do_work();
  }
  void settle() { joins_.settle(TimeSlice(clock_, kSecond)); }
  // To a group that this node does not coordinate.
  void join_far(const Client& client, const GroupId& id, std::int32_t rank) {
    JoinRequest request;
    ASSERT_TRUE(joins_.read(packet_of(id, rank), request));
    ASSERT_TRUE(joins_.add(client, request));
  }
  std::size_t waiting() const {
    std::size_t ranks = 0;
    for (const auto& [uid, set] : joins_.all()) ranks += set.ranks.size();
    return ranks;
  }

  const GroupId id_ = *mint_group_id("here", 7000);
  std::uint64_t request_ = 40;
};

TEST_F(JoinsTest, AreSentToTheCoordinator) {
  ASSERT_TRUE(join(connect(1), 2));
  const auto sent = mail("join");
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0]["rank"], 2);
  EXPECT_EQ(sent[0]["size"], 4);
  EXPECT_EQ(sent[0]["lanes"], kLanes);
  EXPECT_EQ(counters_->joins, 1u);
}

// So that slow names of one user do not delay another's join.
TEST_F(JoinsTest, ACoordinatorIsConnectedToForTheUserWhoJoins) {
  JoinRequest request;
  ASSERT_TRUE(joins_.read(packet_of(*mint_group_id("there", 7000), 0), request));
  ASSERT_TRUE(joins_.add(connect(1, kBob), request));
  links_.do_work();
  ASSERT_EQ(transport_.connected.size(), 1u);
  EXPECT_EQ(transport_.connected[0].user, kBob);
}

TEST_F(JoinsTest, ThatCannotBeReadSayWhy) {
  JoinRequest request;
  auto packet = packet_of(id_, 0);
  std::memset(packet.id, 'x', sizeof(packet.id));
  EXPECT_FALSE(joins_.read(packet, request));
  EXPECT_TRUE(request.uid.empty());
  const Status outside = joins_.read(packet_of(id_, 4), request);
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().code, Errc::invalid_argument);
  EXPECT_EQ(request.uid, to_hex(id_.uid));
}

TEST_F(JoinsTest, OfATakenRankAnotherSecretOrTheSameProcessAreRefused) {
  const Client& first = connect(1);
  const Client& second = connect(2);
  ASSERT_TRUE(join(first, 0));
  EXPECT_FALSE(join(second, 0));
  EXPECT_EQ(refusal(), Errc::rank_taken);
  EXPECT_FALSE(join(first, 1));
  EXPECT_EQ(refusal(), Errc::invalid_argument);
  GroupId forged = id_;
  forged.secret[0] ^= std::byte{1};
  JoinRequest request;
  ASSERT_TRUE(joins_.read(packet_of(forged, 1), request));
  EXPECT_FALSE(joins_.add(second, request));
  EXPECT_EQ(refusal(), Errc::bad_secret);
  EXPECT_EQ(counters_->joins_refused, 3u);
}

TEST_F(JoinsTest, AChallengeIsAnsweredWithAProof) {
  ASSERT_TRUE(join(connect(1), 0));
  joins_.on_message(kSelf, about("challenge", {{"challenge", "c"}}));
  const auto sent = mail("proof");
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0]["hmac"].get<std::string>().size(), 64u);
}

TEST_F(JoinsTest, AnAnswerToAnEarlierJoinIsNotMeant) {
  ASSERT_TRUE(join(connect(1), 0));
  auto stale = about("refused", {{"code", static_cast<int>(Errc::wrong_size)}, {"text", "no"}});
  stale["nonce"] = std::string(32, '0');
  joins_.on_message(kSelf, stale);
  EXPECT_EQ(joins_.all().size(), 1u);
  joins_.on_message(kSelf + 1, about("refused", {{"code", 1}, {"text", "no"}}));
  EXPECT_EQ(joins_.all().size(), 1u);
}

TEST_F(JoinsTest, TakesWhatIsSaidOfJoinsAndNothingElse) {
  ASSERT_TRUE(join(connect(1), 0));
  for (const char* type : {"challenge", "refused", "withdrawn", "waiting"}) {
    EXPECT_TRUE(joins_.on_message(kSelf + 1, about(type, nlohmann::json::object()))) << type;
  }
  for (const char* type : {"", "members", "start", "join"}) {
    EXPECT_FALSE(joins_.on_message(kSelf, about(type, nlohmann::json::object()))) << type;
  }
  EXPECT_FALSE(joins_.on_message(kSelf, nlohmann::json::array()));
  EXPECT_EQ(joins_.all().size(), 1u);
}

TEST_F(JoinsTest, ARefusalReachesTheClient) {
  ASSERT_TRUE(join(connect(1), 0));
  joins_.on_message(kSelf, about("refused", {{"code", static_cast<int>(Errc::wrong_size)},
                                             {"text", "another size"}}));
  EXPECT_EQ(refusal(), Errc::wrong_size);
  EXPECT_TRUE(joins_.all().empty());
  EXPECT_TRUE(joins_.take_failed());
  EXPECT_FALSE(joins_.take_failed());
}

TEST_F(JoinsTest, ALateJoinWaitsForTheCoordinatorsLastWord) {
  ASSERT_TRUE(join(connect(1), 0));
  joins_.on_message(kSelf, about("challenge", {{"challenge", "c"}}));
  joins_.on_message(kSelf, {{"t", "waiting"}, {"uid", to_hex(id_.uid)}, {"missing", {1u, 3u}}});
  mail("proof");
  clock_.advance_ns(kSecond);
  settle();
  EXPECT_EQ(mail("withdraw").size(), 1u);
  EXPECT_FALSE(answer_to(request_));
  joins_.on_message(kSelf, about("withdrawn", nlohmann::json::object()));
  EXPECT_EQ(refusal(), Errc::timeout);
  EXPECT_EQ(answer_to(request_)->text, "waited for rank 1,3");
  EXPECT_TRUE(joins_.all().empty());
}

TEST_F(JoinsTest, WithoutALastWordALateJoinIsRefusedAllTheSame) {
  ASSERT_TRUE(join(connect(1), 0));
  clock_.advance_ns(kSecond);
  settle();
  EXPECT_FALSE(answer_to(request_));
  clock_.advance_ns(joins_.next_deadline_ns() - clock_.now_ns());
  settle();
  EXPECT_EQ(refusal(), Errc::unknown_group);
}

TEST_F(JoinsTest, OfAClientThatIsGoneAreWithdrawn) {
  ASSERT_TRUE(join(connect(1), 0));
  ASSERT_TRUE(join(connect(2), 1));
  joins_.drop_client(1);
  const auto sent = mail("withdraw");
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0]["rank"], 0);
  EXPECT_EQ(joins_.all().at(to_hex(id_.uid)).ranks.size(), 1u);
}

TEST_F(JoinsTest, ALinkThatHasWorkedIsOpenedAgainAndOneThatHasNotRefusesAll) {
  const GroupId far = *mint_group_id("there", 7000);
  JoinRequest request;
  ASSERT_TRUE(joins_.read(packet_of(far, 0), request));
  ASSERT_TRUE(joins_.add(connect(1), request));
  const LinkRef first = joins_.all().begin()->second.coordinator;
  lose_links();
  joins_.on_link_lost(first, true, Errc::ok, "it broke");
  settle();
  ASSERT_EQ(joins_.all().size(), 1u);
  const LinkRef second = joins_.all().begin()->second.coordinator;
  EXPECT_NE(second, first);
  joins_.on_link_lost(second, false, Errc::ok, "nobody listens");
  settle();
  EXPECT_EQ(refusal(), Errc::unreachable);
  EXPECT_TRUE(joins_.all().empty());
}

// The clock of a test stands still: a slice is over at once, or never.
TEST_F(JoinsTest, OfALostLinkAreRefusedAsThereIsTimeFor) {
  const GroupId groups[] = {*mint_group_id("there", 7000), *mint_group_id("there", 7000)};
  for (std::uint64_t i = 0; i < 6; ++i) {
    join_far(connect(i + 1), groups[i % 2], static_cast<std::int32_t>(i / 2));
  }
  const LinkRef link = joins_.all().begin()->second.coordinator;
  joins_.on_link_lost(link, false, Errc::ok, "nobody listens");
  EXPECT_EQ(waiting(), 6u) << "they have their turn";
  EXPECT_EQ(joins_.next_deadline_ns(), clock_.now_ns());
  joins_.settle(TimeSlice(clock_, 0));
  EXPECT_EQ(waiting(), 5u);
  joins_.settle(TimeSlice(clock_, 0));
  EXPECT_EQ(waiting(), 4u);
  settle();
  EXPECT_EQ(waiting(), 0u);
  EXPECT_EQ(counters_->joins_refused, 6u);
  EXPECT_GT(joins_.next_deadline_ns(), clock_.now_ns());
}

TEST_F(JoinsTest, OfALinkThatHasWorkedAreAskedAgainAsThereIsTimeFor) {
  for (std::uint64_t i = 0; i < 3; ++i) join_far(connect(i + 1), *mint_group_id("there", 7000), 0);
  const LinkRef link = joins_.all().begin()->second.coordinator;
  lose_links();
  const auto left = [&] {
    return std::count_if(joins_.all().begin(), joins_.all().end(),
                         [&](const auto& one) { return one.second.coordinator == link; });
  };
  joins_.on_link_lost(link, true, Errc::ok, "it broke");
  EXPECT_EQ(left(), 3);
  joins_.settle(TimeSlice(clock_, 0));
  EXPECT_EQ(left(), 2);
  settle();
  EXPECT_EQ(left(), 0);
  EXPECT_EQ(waiting(), 3u);
}

// Between the end of a link and the news of it.
TEST_F(JoinsTest, AJoinOnANewLinkTakesTheOthersOfItsGroupAlong) {
  const GroupId far = *mint_group_id("there", 7000);
  join_far(connect(1), far, 0);
  const LinkRef first = joins_.all().begin()->second.coordinator;
  lose_links();
  join_far(connect(2), far, 1);
  const JoinSet& set = joins_.all().begin()->second;
  ASSERT_NE(set.coordinator, first);
  EXPECT_EQ(set.ranks.size(), 2u);
  // The old one's end is none of theirs.
  joins_.on_link_lost(first, false, Errc::ok, "it broke");
  settle();
  EXPECT_EQ(waiting(), 2u);
}

TEST_F(JoinsTest, WhoseTimeHasRunOutEndAsThereIsTimeFor) {
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(join(connect(i + 1), static_cast<int>(i)));
  mail("join");
  clock_.advance_ns(kSecond);
  EXPECT_EQ(joins_.settle(TimeSlice(clock_, 0)), 1);
  EXPECT_EQ(mail("withdraw").size(), 1u);
  EXPECT_LE(joins_.next_deadline_ns(), clock_.now_ns());
  EXPECT_EQ(joins_.settle(TimeSlice(clock_, kSecond)), 2);
  EXPECT_EQ(mail("withdraw").size(), 2u);
}

}  // namespace
}  // namespace tern::daemon::conductor_test
