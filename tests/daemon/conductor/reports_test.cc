#include "daemon/conductor/reports.h"

#include <algorithm>
#include <cstring>

#include "daemon/conductor/device_reports.h"
#include "part_rig.h"
#include "tests/daemon/control/all_rows.h"

namespace tern::daemon::conductor_test {
namespace {

class ReportsTest : public PartRig {
 protected:
  void SetUp() override {
    greet(connect(1, kAlice));
    greet(connect(2, kBob));
    connect(3, kBob);  // says nothing
    group_ = &add_group({1});
  }

  void join(std::uint64_t client, const GroupId& id, std::int32_t rank, std::int32_t size) {
    auto packet = shm::make_packet<shm::GroupJoinPacket>(shm::PacketKind::group_join, 40 + client);
    const std::string text = format_group_id(id);
    std::memcpy(packet.id, text.c_str(), text.size() + 1);
    packet.rank = rank;
    packet.size = size;
    JoinRequest request;
    ASSERT_TRUE(joins_.read(packet, request));
    ASSERT_TRUE(joins_.add(*clients_.find(client), request));
  }

  const Scope all_ = Scope::of_all(), alice_ = Scope::of_user(kAlice), bob_ = Scope::of_user(kBob);
  MemberGroup* group_ = nullptr;
  TensorRegistry tensors_{settings_, outlets_, {groups_, quotas_, kept_, refusals_, nullptr}};
  TurnWatch turns_{clock_, counters_, pointers()};
  DeviceReports devices_{outlets_};
  Reports reports_{{outlets_, clients_, joins_, groups_, tensors_, links_, nullptr, turns_},
                   pointers(),
                   "loopback"};
};

TEST_F(ReportsTest, AUserSeesTheirOwn) {
  EXPECT_EQ(reports_.clients(all_).size(), 2u);
  ASSERT_EQ(reports_.clients(alice_).size(), 1u);
  EXPECT_EQ(reports_.clients(alice_)[0]["groups"], 1);
  EXPECT_EQ(all_rows(reports_.groups(alice_)).size(), 1u);
  EXPECT_EQ(all_rows(reports_.groups(bob_)).size(), 0u);
  EXPECT_EQ(reports_.client_count(bob_), 1u);
  EXPECT_EQ(reports_.client_count(), 3u);
  EXPECT_EQ(reports_.group_count(bob_), 0u);
  EXPECT_EQ(reports_.peer_count(alice_), 1u);
  EXPECT_EQ(reports_.peer_count(bob_), 0u);
}

TEST_F(ReportsTest, AClientHasWhatItSaidOfItsDevices) {
  EXPECT_EQ(reports_.clients(alice_)[0]["devices"], nlohmann::json::array());
  auto packet = shm::make_packet<shm::DeviceReportPacket>(shm::PacketKind::device_report, 7);
  packet.device = 2;
  packet.pinned_bytes = 4096;
  packet.pinning_failures = 1;
  std::strcpy(packet.pinning_problem, "cannot pin");
  packet.operations = 5;
  packet.failures = 1;
  packet.encodes = 4;
  packet.encode_ns = 10'000;
  packet.last_encode_ns = 1'000;
  EXPECT_EQ(devices_.take(*clients_.find(1), packet), nullptr);
  clock_.advance_ns(kSecond);
  const auto device = reports_.clients(alice_)[0]["devices"][0];
  EXPECT_EQ(device["device"], 2);
  EXPECT_EQ(device["reported_s"], 1.0);
  EXPECT_EQ(device["device_bytes"], 0);
  EXPECT_EQ(device["pinned_bytes"], 4096);
  EXPECT_EQ(device["pinning_failures"], 1);
  EXPECT_EQ(device["pinning_problem"], "cannot pin");
  EXPECT_EQ(device["ops"], 5);
  EXPECT_EQ(device["ops_failed"], 1);
  EXPECT_EQ(device["encode_us"], 2.5);
  EXPECT_EQ(device["last_encode_us"], 1.0);
  EXPECT_EQ(device["decodes"], 0);
  EXPECT_TRUE(device["decode_us"].is_null()) << "nothing was measured";
  EXPECT_TRUE(device["last_decode_us"].is_null());
}

TEST_F(ReportsTest, DevicesAreThoseOfWhichSomethingWasSaidSince) {
  auto packet = shm::make_packet<shm::DeviceReportPacket>(shm::PacketKind::device_report, 7);
  packet.encodes = 4;
  packet.encode_ns = 10'000;
  devices_.take(*clients_.find(1), packet);
  const std::uint64_t first_ns = clock_.now_ns();
  clock_.advance_ns(kSecond);
  packet.device = 1;
  devices_.take(*clients_.find(2), packet);
  EXPECT_EQ(reports_.devices(0).size(), 2u);
  EXPECT_EQ(reports_.devices(first_ns).size(), 2u);
  const auto rows = reports_.devices(first_ns + 1);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["at_ns"], clock_.now_ns());
  EXPECT_EQ(rows[0]["client"], 2);
  EXPECT_EQ(rows[0]["job"], "job");
  EXPECT_EQ(rows[0]["device"], 1);
  EXPECT_EQ(rows[0]["encodes"], 4);
  EXPECT_EQ(rows[0]["encode_ns"], 10'000);
}

TEST_F(ReportsTest, AGroupSaysHowFarItIs) {
  EXPECT_EQ(all_rows(reports_.groups(all_))[0]["state"], "joining");
  groups_.start(*group_);
  EXPECT_EQ(all_rows(reports_.groups(all_))[0]["state"], "running");
  groups_.leave(*group_, group_->ranks[0], 0);
  EXPECT_EQ(all_rows(reports_.groups(all_))[0]["state"], "leaving");
  groups_.end(*group_, Errc::peer_lost, "a peer was lost", false);
  EXPECT_EQ(all_rows(reports_.groups(all_))[0]["state"], "failed");
  EXPECT_EQ(all_rows(reports_.groups(all_))[0]["error"],
            std::string(errc_name(Errc::peer_lost)) + ": a peer was lost");
}

TEST_F(ReportsTest, AJoinSaysForHowLongItsFirstRankHasWaited) {
  const GroupId id = *mint_group_id("here", 7000);
  join(1, id, 3, 4);
  clock_.advance_ns(kSecond);
  join(2, id, 0, 4);
  clock_.advance_ns(kSecond / 2);
  const auto rows = all_rows(reports_.groups(all_));
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [](const nlohmann::json& one) { return one["number"] == 0; });
  ASSERT_NE(row, rows.end());
  EXPECT_EQ((*row)["waiting"][0]["seconds"], 1.5);
}

// Joins of the largest groups name very many ranks, and a user may have very many joins.
TEST_F(ReportsTest, ALongListOfGroupsIsMadeInPieces) {
  nlohmann::json missing = nlohmann::json::array();
  for (std::uint32_t rank = 1; rank < 1024; ++rank) missing.push_back(rank);
  constexpr std::size_t kJoins = 5;
  for (std::size_t i = 0; i < kJoins; ++i) {
    const GroupId id = *mint_group_id("here", 7000);
    join(1, id, 0, 1024);
    joins_.on_message(kSelf, {{"t", "waiting"}, {"uid", to_hex(id.uid)}, {"missing", missing}});
  }
  while (groups_.all().size() < kRowsOfCall + 1) add_group({1});
  RowSource source = reports_.groups(alice_);
  nlohmann::json rows = nlohmann::json::array();
  ASSERT_TRUE(source(rows));
  ASSERT_EQ(rows.size(), 4u) << "of four thousand numbers";
  for (const nlohmann::json& row : rows) EXPECT_EQ(row["waiting"][0]["ranks"], missing);
  rows.clear();
  ASSERT_TRUE(source(rows));
  ASSERT_EQ(rows.size(), kRowsOfCall);
  EXPECT_EQ(rows[0]["number"], 0) << "the last join";
  EXPECT_EQ(rows[1]["number"], group_->number);
  // Anything may come and go between two pieces.
  groups_.forget(*groups_.by_number(rows[kRowsOfCall - 1]["number"]));
  const std::uint64_t last = add_group({1}).number;
  const auto others = all_rows(source);
  ASSERT_EQ(others.size(), 3u);
  EXPECT_EQ(others[2]["number"], last);
  EXPECT_EQ(all_rows(reports_.groups(bob_)).size(), 0u);
}

// Of two lanes each has the large op, and one of the small ones.
TEST_F(ReportsTest, AnOpOnSeveralLanesIsOne) {
  const auto submit = [&](std::size_t lane, collective::OpKey key, std::uint64_t count) {
    wire::AnnounceBody body{};
    body.kind = static_cast<std::uint16_t>(shm::OpKind::all_reduce);
    body.count = count;
    collective::OpId op = collective::kNoSlot;
    EXPECT_EQ(group_->lanes[lane]->core().ops().on_submit({0, key, body, 0, 1}, op),
              collective::GroupOps::SubmitResult::accepted);
  };
  for (const std::size_t lane : {0u, 1u}) {
    submit(lane, {0, 0}, 1 << 20);
    submit(lane, {0, 2 + lane}, 4);
    group_->lanes[lane]->on_timer(clock_.now_ns());
  }
  const auto row = all_rows(reports_.groups(all_))[0];
  EXPECT_EQ(row["ops_in_flight"], 3);
  EXPECT_EQ(row["waiting"].size(), 3u);
  EXPECT_EQ(reports_.clients(alice_)[0]["ops_in_flight"], 3);
}

TEST_F(ReportsTest, CountersOfLanesAreSummedUp) {
  ++counters_->joins;
  const auto rows = reports_.counters();
  EXPECT_EQ(rows["joins"]["value"], 1);
  EXPECT_EQ(rows["ops_completed"]["lanes"].size(), kLanes);
}

TEST_F(ReportsTest, CountersNameTheStepsOfTheLongestTurns) {
  turns_.step("on_group_join");
  clock_.advance_ns(7'000'000);
  turns_.end();
  const auto rows = reports_.counters();
  EXPECT_EQ(rows["conductor_longest_turn_ns"]["value"], 7'000'000);
  EXPECT_EQ(rows["conductor_longest_turn_ns"]["step"], "on_group_join");
  EXPECT_EQ(rows["lane_longest_turn_ns"]["lanes"].size(), kLanes);
  EXPECT_EQ(rows["lane_longest_turn_ns"]["steps"].size(), kLanes);
}

TEST_F(ReportsTest, NamesAreOfGroupsAndTheirTensors) {
  DeclaredTensor tensor;
  tensor.state = std::make_shared<TensorState>();
  tensor.state->name = "w";
  tensor.state->id = 5;
  group_->tensors.add(tensor);
  const auto rows = reports_.names();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["tensors"]["5"], "w");
  EXPECT_EQ(all_rows(reports_.tensors(alice_))[0]["recipe"], "none(raw)");
  EXPECT_TRUE(all_rows(reports_.tensors(alice_))[0]["state_of"].is_null());
  const auto kind = static_cast<std::uint16_t>(shm::OpKind::all_gather);
  ASSERT_TRUE(tensor.state->memory_use.take({.kind = kind, .one_leg = true}));
  EXPECT_EQ(all_rows(reports_.tensors(alice_))[0]["state_of"], "all_gather");
}

// A piece of it after the other, while groups and tensors come and go.
TEST_F(ReportsTest, ALongListOfTensorsIsMadeInPieces) {
  constexpr std::uint64_t kTensors = 2 * kRowsOfCall;
  const auto declare = [this](std::uint64_t id) {
    DeclaredTensor tensor;
    tensor.state = std::make_shared<TensorState>();
    tensor.state->name = std::to_string(id);
    tensor.state->id = id;
    group_->tensors.add(tensor);
  };
  for (std::uint64_t id = 1; id <= kTensors; ++id) declare(id);
  RowSource source = reports_.tensors(alice_);
  nlohmann::json rows = nlohmann::json::array();
  ASSERT_TRUE(source(rows));
  ASSERT_EQ(rows.size(), kRowsOfCall);
  EXPECT_EQ(rows[0]["name"], "1");
  group_->tensors.remove(kRowsOfCall);
  group_->tensors.remove(kRowsOfCall + 1);
  declare(~std::uint64_t{0});
  const auto others = all_rows(source);
  ASSERT_EQ(others.size(), kRowsOfCall);
  EXPECT_EQ(others.front()["name"], std::to_string(kRowsOfCall + 2));
  EXPECT_EQ(others.back()["name"], std::to_string(~std::uint64_t{0}));
  EXPECT_EQ(all_rows(reports_.tensors(Scope::of_user(4321))).size(), 0u);
}

}  // namespace
}  // namespace tern::daemon::conductor_test
