#include "daemon/conductor/state_moves.h"

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class StateMovesTest : public PartRig {
 protected:
  void SetUp() override {
    greet(connect(1));
    group_ = &add_group({1});
    DeclaredTensor tensor;
    tensor.holders = 1;
    tensor.state = std::make_shared<TensorState>();
    tensor.state->id = 77;
    tensor.state->count = 1000;
    codec::Recipe& recipe = tensor.state->declared.recipe;
    EXPECT_TRUE(codec::parse_recipe_quick("ef(3lc:s=1)", recipe));
    EXPECT_TRUE(
        tensor.state->codec.allocate(recipe, {.count = 1000, .chunk_elements = 4096, .nodes = 2}));
    state_ = tensor.state.get();
    group_->tensors.add(tensor);
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) commands_of(lane);
  }
  shm::TensorStatePacket packet(shm::StateAction action, std::uint64_t bytes) {
    auto made = shm::make_packet<shm::TensorStatePacket>(shm::PacketKind::tensor_state, ++request_);
    made.group = group_->number;
    made.tensor = 77;
    made.action = static_cast<decltype(made.action)>(action);
    made.bytes = bytes;
    return made;
  }
  void begin(const shm::TensorStatePacket& packet) { moves_.begin(clients_.at(1), packet); }
  event::StateMoved moved(std::uint32_t lane, Errc code = Errc::ok) {
    const auto taken = commands_of(lane);
    EXPECT_EQ(taken.size(), 1u);
    return {group_->lanes[lane].get(), std::get<command::MoveState>(taken.at(0)).move, code,
            Sentence(code == Errc::ok ? "" : "an operation is in flight")};
  }

  MemberGroup* group_ = nullptr;
  TensorState* state_ = nullptr;
  StateMoves moves_{outlets_, clients_, groups_};
  std::uint64_t request_ = 300;
};

TEST_F(StateMovesTest, TheSizeIsToldAtOnce) {
  begin(packet(shm::StateAction::size, 0));
  EXPECT_EQ(answer_to(301)->kind, shm::PacketKind::tensor_state_reply);
  EXPECT_EQ(moves_.count(), 0u);
}

TEST_F(StateMovesTest, AnExportIsAnsweredWhenAllLanesHaveCopied) {
  begin(packet(shm::StateAction::export_part, 8192));
  moves_.on_moved(moved(0));
  EXPECT_FALSE(answer_to(301));
  EXPECT_EQ(moves_.count(), 1u);
  moves_.on_moved(moved(1));
  EXPECT_EQ(answer_to(301)->kind, shm::PacketKind::tensor_state_reply);
  EXPECT_EQ(moves_.count(), 0u);
  EXPECT_FALSE(state_->imported);
}

// The lanes are others' too.
TEST_F(StateMovesTest, OfAClientAreOneAfterTheOther) {
  for (int i = 0; i < 3; ++i) begin(packet(shm::StateAction::export_part, 8192));
  for (std::uint64_t request = 301; request <= 303; ++request) {
    EXPECT_EQ(moves_.count(), 1u);
    moves_.on_moved(moved(0));  // one command for each lane
    EXPECT_FALSE(answer_to(request));
    moves_.on_moved(moved(1));
    ASSERT_TRUE(answer_to(request));
    EXPECT_EQ(answer_to(request)->kind, shm::PacketKind::tensor_state_reply);
  }
  EXPECT_EQ(moves_.count(), 0u);
}

TEST_F(StateMovesTest, ThatWaitAreAnsweredAtOnceIfTheyCannotBegin) {
  begin(packet(shm::StateAction::export_part, 8192));
  begin(packet(shm::StateAction::export_part, 16));
  begin(packet(shm::StateAction::export_part, 8192));
  moves_.on_moved(moved(0));
  moves_.on_moved(moved(1));
  EXPECT_EQ(answer_to(302)->status, Errc::invalid_argument);
  moves_.on_moved(moved(0));
  moves_.on_moved(moved(1));
  EXPECT_EQ(answer_to(303)->kind, shm::PacketKind::tensor_state_reply);
}

TEST_F(StateMovesTest, ThatWaitAreBounded) {
  for (int i = 0; i < 1 + 64; ++i) {
    begin(packet(shm::StateAction::export_part, 8192));
    EXPECT_FALSE(answer_to(request_));
  }
  begin(packet(shm::StateAction::export_part, 8192));
  EXPECT_EQ(answer_to(request_)->status, Errc::quota_exceeded);
  moves_.forget(1);
  moves_.on_moved(moved(0));
  moves_.on_moved(moved(1));
  EXPECT_EQ(moves_.count(), 0u);
}

TEST_F(StateMovesTest, ALanesRefusalIsTheAnswer) {
  begin(packet(shm::StateAction::export_part, 8192));
  moves_.on_moved(moved(0, Errc::would_block));
  moves_.on_moved(moved(1));
  EXPECT_EQ(answer_to(301)->status, Errc::would_block);
}

TEST_F(StateMovesTest, RoomMustLieInTheArenaAndSuffice) {
  begin(packet(shm::StateAction::export_part, 1 << 20));
  EXPECT_EQ(answer_to(301)->status, Errc::invalid_argument);
  begin(packet(shm::StateAction::export_part, 16));
  EXPECT_EQ(answer_to(302)->status, Errc::invalid_argument);
  EXPECT_NE(answer_to(302)->text.find("the part has"), std::string::npos);
}

TEST_F(StateMovesTest, ForeignBytesAreNoState) {
  begin(packet(shm::StateAction::import_parts, 8192));
  ASSERT_TRUE(answer_to(301));
  EXPECT_NE(answer_to(301)->status, Errc::ok);
  EXPECT_EQ(moves_.count(), 0u);
}

TEST_F(StateMovesTest, OnlyWhoHasDeclaredTheTensorMayMoveIt) {
  group_->tensors.at(77).holders = 0;
  begin(packet(shm::StateAction::export_part, 8192));
  EXPECT_EQ(answer_to(301)->status, Errc::unknown_tensor);
}

}  // namespace
}  // namespace tern::daemon::conductor_test
