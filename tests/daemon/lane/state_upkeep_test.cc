#include "daemon/lane/state_upkeep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "plan/plans.h"
#include "tests/daemon/lane/lane_rig.h"

namespace tern::daemon::state_upkeep_test {
namespace {

constexpr std::uint64_t kChunk = 16, kChunks = 6, kCount = kChunk * kChunks;

// The first of two lanes.
collective::GroupShape shape_of(std::uint32_t nodes) {
  collective::GroupShape shape;
  shape.lanes = 2;
  shape.chunk_bytes = kChunk * sizeof(float);
  shape.eager_bytes = 0;
  shape.max_ops_in_flight = 4;
  for (std::uint32_t node = 0; node < nodes; ++node) shape.ranks.push_back({node});
  return shape;
}

// A node's part of a group, and one tensor.
class Rig {
 public:
  Rig(std::uint32_t nodes, const char* recipe, bool eager = false)
      : ops(shape_of(nodes)),
        lane_ops(ops.table().slots(), 1, 4),
        upkeep(ops, lane_ops),
        eager_(eager) {
    tensor.id = 8;  // an even one: lane 0 has the first round
    tensor.count = kCount;
    EXPECT_TRUE(codec::parse_recipe_quick(recipe, tensor.declared.recipe));
    tensor.declared.one_lane = codec::scans_tensor(tensor.declared.recipe);
    EXPECT_TRUE(tensor.codec.allocate(tensor.declared.recipe, shape()));
  }
  CodecState::Shape shape() const {
    return {.count = kCount,
            .chunk_elements = kChunk,
            .nodes = ops.nodes(),
            .eager = eager_,
            .announced = eager_};
  }
  // Submitted by this node's rank.
  collective::OpId begin(bool lossy, bool with_tensor = true) {
    wire::AnnounceBody body = lane_test::all_reduce_of(kCount);
    if (tensor.declared.one_lane) body.flags = wire::kAnnounceOneLane;
    const std::uint64_t id = with_tensor ? tensor.id : 0;
    const collective::OpId op = lane_test::submit(ops, {id, next_use_++}, body);
    LaneOp begun;
    begun.tensor = with_tensor ? &tensor : nullptr;
    begun.encoding.lossy = lossy;
    lane_ops.begin(op, begun);
    return op;
  }
  // And by the other node's.
  void start(collective::OpId op) {
    collective::OpId same = collective::kNoSlot;
    const collective::Op& its = ops.op(op);
    EXPECT_TRUE(ops.on_announce(1, its.key, its.announced_first, same));
    announce();
    EXPECT_TRUE(its.has_started());
  }
  // The op that was begun last.
  void announce() { ops.done(lane_test::run_until(ops, collective::ActionKind::announce)); }
  void set_steps(std::uint64_t step) {
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      tensor.codec.sender_step(chunk) = tensor.codec.receiver_step(1, chunk) = step;
    }
    TensorLane& lane = tensor.lanes[0];
    lane.streams.sent = lane.streams.received = true;
  }
  // Chunks, as bits, whose sender has begun anew.
  std::uint64_t restarted() {
    std::uint64_t chunks = 0;
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      if (tensor.codec.sender_step(chunk) == 0) chunks |= std::uint64_t{1} << chunk;
    }
    return chunks;
  }
  void fail(collective::OpId op, Errc code) { ops.fail(op, {code, 0, "failed"}); }

  collective::GroupOps ops;
  LaneOps lane_ops;
  StateUpkeep upkeep;
  TensorState tensor;

  // What the op will change has been saved, and is changed to this.
  void change_state(collective::OpId op, float value) {
    upkeep.save(op);
    std::fill_n(tensor.codec.sender(0), kCount, value);
  }

 private:
  bool eager_;
  std::uint64_t next_use_ = 0;
};

// Of two nodes: the chunks of the first and the third round.
constexpr std::uint64_t kOwnChunks = 0b110011;

constexpr const char* kStreams = "diana(qsgd:levels=4)";
constexpr const char* kResidual = "ef(3lc:s=1)";

// ---- Failures

TEST(StateUpkeep, WhatWasAnnouncedOfAnOpThatNeverBeganIsOwedAgain) {
  Rig rig(2, kResidual, true);
  std::fill_n(rig.tensor.codec.sender(0), kCount, 0.5f);
  rig.tensor.tuning = std::make_unique<TensorTuning>(
      TensorTuning::Candidates{std::make_shared<CandidateRecipes>(), 0},
      TensorTuning::Place{1, 2, 0, kChunks});
  const collective::OpId op = rig.begin(true);
  LaneOp tuned = rig.lane_ops[op];
  tuned.encoding.tuning = rig.tensor.tuning.get();
  rig.lane_ops.begin(op, tuned);
  rig.change_state(op, 0.0f);
  rig.fail(op, Errc::cancelled);
  EXPECT_EQ(rig.upkeep.lose(op), 0u);
  EXPECT_EQ(rig.tensor.codec.sender(0)[kCount - 1], 0.5f);
  EXPECT_EQ(rig.tensor.tuning->residual_pending(0), 1) << "what loses nothing carries it, too";
}

TEST(StateUpkeep, AnOpThatHasBegunTakesItsBlockWithIt) {
  Rig rig(2, kResidual, true);
  const collective::OpId op = rig.begin(true);
  rig.change_state(op, 0.25f);
  rig.start(op);
  rig.fail(op, Errc::cancelled);
  rig.upkeep.lose(op);
  EXPECT_EQ(rig.tensor.codec.sender(0)[0], 0.25f);
}

// Blocks may be done late: another op of the tensor may have been encoded meanwhile.
TEST(StateUpkeep, NothingIsTakenBackOverALaterOp) {
  Rig rig(2, kResidual, true);
  const collective::OpId first = rig.begin(true);
  rig.change_state(first, 0.25f);
  rig.fail(first, Errc::cancelled);
  rig.tensor.codec.save(7);
  std::fill_n(rig.tensor.codec.sender(0), kCount, 0.75f);
  rig.upkeep.lose(first);
  EXPECT_EQ(rig.tensor.codec.sender(0)[0], 0.75f);
}

TEST(StateUpkeep, AnAnnouncedBlockLeavesTheStateInDoubtWhenTheEpochEnds) {
  Rig rig(2, kResidual, true);
  const collective::OpId op = rig.begin(true);
  rig.upkeep.mark_all_doubtful();
  EXPECT_FALSE(rig.tensor.doubtful);
  rig.change_state(op, 0.25f);
  rig.upkeep.mark_all_doubtful();
  EXPECT_TRUE(rig.tensor.doubtful) << "another node may have delivered it";
}

TEST(StateUpkeep, RestartsTheStreamsOfThisLanesChunks) {
  Rig rig(2, kStreams);
  rig.set_steps(9);
  rig.upkeep.restart_streams(rig.tensor);
  EXPECT_EQ(rig.restarted(), kOwnChunks);
  EXPECT_EQ(rig.tensor.codec.receiver_step(1, 0), 9u) << "readers follow what they see";
}

// As often as another node says so, the chunks are gone through for what was sent since.
TEST(StateUpkeep, StreamsOfWhichNothingWasSentSinceAreLeftAsTheyAre) {
  Rig rig(2, kStreams);
  rig.set_steps(9);
  rig.upkeep.restart_streams(rig.tensor);
  rig.tensor.codec.sender_step(0) = 7;  // which no block does
  rig.upkeep.restart_streams(rig.tensor);
  EXPECT_EQ(rig.tensor.codec.sender_step(0), 7u);
  rig.set_steps(1);
  rig.upkeep.restart_streams(rig.tensor);
  EXPECT_EQ(rig.restarted(), kOwnChunks);
}

TEST(StateUpkeep, StreamsThatWereLostAreLostOnceUntilMoreComes) {
  Rig rig(2, kStreams);
  rig.set_steps(9);
  const auto fail_one = [&rig] {
    const collective::OpId op = rig.begin(true);
    rig.announce();
    rig.fail(op, Errc::cancelled);
    const std::uint64_t resets = rig.upkeep.lose(op);
    EXPECT_EQ(rig.upkeep.lose(op), 0u) << "for a rank that comes later it is as it was left";
    rig.ops.release(lane_test::run_until(rig.ops, collective::ActionKind::complete).op);
    rig.upkeep.forget(op);
    return resets;
  };
  EXPECT_EQ(fail_one(), 1u);
  rig.tensor.codec.receiver_step(1, 0) = 7;  // which no block does
  EXPECT_EQ(fail_one(), 1u) << "the others are told of every loss";
  EXPECT_TRUE(rig.upkeep.take_lost(rig.tensor));
  EXPECT_EQ(rig.tensor.codec.receiver_step(1, 0), 7u);
}

TEST(StateUpkeep, AFailedOpLosesTheStreamsOfBothDirections) {
  Rig rig(2, kStreams);
  rig.set_steps(9);
  const collective::OpId op = rig.begin(true);
  rig.announce();
  rig.fail(op, Errc::cancelled);
  EXPECT_EQ(rig.upkeep.lose(op), 1u);
  EXPECT_EQ(rig.restarted(), kOwnChunks);
  EXPECT_NE(rig.tensor.codec.receiver_step(1, 0), 9u);
  EXPECT_EQ(rig.tensor.codec.receiver_step(1, 2), 9u) << "of the other lane";
  EXPECT_TRUE(rig.upkeep.take_lost(rig.tensor));
  EXPECT_FALSE(rig.upkeep.take_lost(rig.tensor)) << "the others are told once";
}

// A use of the tensor that runs meanwhile has blocks under way, which carry their steps.
TEST(StateUpkeep, AnOpThatWasNotAnnouncedHasMovedNoStream) {
  Rig rig(2, kStreams);
  rig.set_steps(9);
  const collective::OpId op = rig.begin(true);
  rig.fail(op, Errc::cancelled);
  EXPECT_EQ(rig.upkeep.lose(op), 0u);
  EXPECT_EQ(rig.restarted(), 0u);
  EXPECT_EQ(rig.tensor.codec.receiver_step(1, 0), 9u);
  EXPECT_FALSE(rig.upkeep.take_lost(rig.tensor));
}

TEST(StateUpkeep, AFailedOpLosesNothingWithoutStreams) {
  Rig rig(2, kResidual);
  rig.tensor.codec.sender(0)[0] = 1.5f;
  const collective::OpId named = rig.begin(true), anonymous = rig.begin(false, false);
  rig.fail(named, Errc::cancelled);
  rig.fail(anonymous, Errc::cancelled);
  EXPECT_EQ(rig.upkeep.lose(named), 0u);
  EXPECT_EQ(rig.upkeep.lose(anonymous), 0u);
  EXPECT_EQ(rig.tensor.codec.sender(0)[0], 1.5f);
  EXPECT_FALSE(rig.upkeep.take_lost(rig.tensor));
}

TEST(StateUpkeep, AFailedOpForgetsTheSumsThatItHasParked) {
  Rig rig(1, "ef(3lc:scale=tensor)");
  const collective::OpId op = rig.begin(true);
  const collective::Action finish = lane_test::run_until(rig.ops, collective::ActionKind::finish);
  rig.ops.parked(finish);
  const std::uint32_t parked = rig.ops.op(op).chunks.chunk(0, finish.index);
  const std::uint32_t other = (parked + 1) % kChunks;
  for (std::uint64_t i = 0; i < kCount; ++i) rig.tensor.codec.sender(0)[i] = 1.5f;
  rig.fail(op, Errc::cancelled);
  EXPECT_EQ(rig.upkeep.lose(op), 1u);
  EXPECT_TRUE(rig.upkeep.is_clearing(op));
  EXPECT_EQ(rig.upkeep.clear_some(1), op);
  EXPECT_FALSE(rig.upkeep.is_clearing());
  for (std::uint64_t i = 0; i < kChunk; ++i) {
    ASSERT_EQ(rig.tensor.codec.sender(parked * kChunk)[i], 0.0f);
    ASSERT_EQ(rig.tensor.codec.sender(other * kChunk)[i], 1.5f);
  }
}

// A large tensor's are more than a lane does in a turn.
TEST(StateUpkeep, ParkedSumsAreClearedAFewAtATime) {
  Rig rig(1, "ef(3lc:scale=tensor)");
  const auto park_all = [&rig](collective::OpId op) {
    for (std::uint64_t chunk = 0; chunk < kChunks; ++chunk) {
      rig.ops.parked(lane_test::run_until(rig.ops, collective::ActionKind::finish));
    }
    rig.fail(op, Errc::cancelled);
    EXPECT_EQ(rig.upkeep.lose(op), kChunks);
  };
  const auto left = [&rig] {
    const float* const state = rig.tensor.codec.sender(0);
    return kCount - static_cast<std::uint64_t>(std::count(state, state + kCount, 0.0f));
  };
  const collective::OpId op = rig.begin(true);
  park_all(op);
  std::fill_n(rig.tensor.codec.sender(0), kCount, 1.5f);
  // Two and a half chunks are three.
  EXPECT_EQ(rig.upkeep.clear_some(kChunk * sizeof(float) * 5 / 2), collective::kNoSlot);
  EXPECT_EQ(left(), kCount - 3 * kChunk);
  EXPECT_TRUE(rig.upkeep.is_clearing(op));
  EXPECT_EQ(rig.upkeep.clear_some(kCount * sizeof(float)), op);
  EXPECT_EQ(left(), 0u);
  EXPECT_FALSE(rig.upkeep.is_clearing());
}

// The next op reads and writes where they lie.
TEST(StateUpkeep, TheNextOpIsNotAnnouncedBeforeOneWithParkedSumsIsReleased) {
  Rig rig(1, "ef(3lc:scale=tensor)");
  const collective::OpId failed = rig.begin(true);
  rig.ops.parked(lane_test::run_until(rig.ops, collective::ActionKind::finish));
  rig.fail(failed, Errc::cancelled);
  const collective::OpId next = rig.begin(true);
  EXPECT_EQ(lane_test::run_until(rig.ops, collective::ActionKind::complete).op, failed);
  EXPECT_EQ(rig.ops.next(lane_test::kRoom).kind, collective::ActionKind::none);
  rig.upkeep.lose(failed);
  EXPECT_EQ(rig.upkeep.clear_some(kCount * sizeof(float)), failed);
  EXPECT_EQ(rig.ops.next(lane_test::kRoom).kind, collective::ActionKind::none);
  rig.ops.release(failed);
  EXPECT_EQ(lane_test::run_until(rig.ops, collective::ActionKind::announce).op, next);
}

// ---- Doubt

TEST(StateUpkeep, OnlyALossyOpThatHasStartedLeavesDoubt) {
  Rig rig(2, kResidual);
  const collective::OpId op = rig.begin(true);
  rig.upkeep.mark_all_doubtful();
  EXPECT_FALSE(rig.tensor.doubtful.load()) << "nothing of it has been sent";
  rig.start(op);
  rig.upkeep.mark_all_doubtful();
  EXPECT_TRUE(rig.tensor.doubtful.load());
  Rig exact(2, kResidual);
  exact.start(exact.begin(false));
  exact.start(exact.begin(true, false));
  exact.upkeep.mark_all_doubtful();
  EXPECT_FALSE(exact.tensor.doubtful.load());
}

TEST(StateUpkeep, WhereARankHasLeftTheResidualIsInDoubt) {
  for (const Errc code : {Errc::cancelled, Errc::group_left}) {
    Rig rig(2, kResidual);
    const collective::OpId op = rig.begin(true);
    rig.start(op);
    rig.fail(op, code);
    rig.upkeep.lose(op);
    EXPECT_EQ(rig.tensor.doubtful.load(), code == Errc::group_left);
  }
}

// ---- Checkpoints

class StateMoveTest : public ::testing::Test {
 protected:
  explicit StateMoveTest(const char* recipe = kResidual, codec::Memory memory = codec::Memory::ef)
      : rig(2, recipe), part(memory, 1.0f, rig.shape(), rig.tensor.id), room(part.bytes()) {}

  event::StateMoved move(bool imports) {
    StateMove move{.part = part, .tensor = &rig.tensor, .room = room, .imports = imports};
    move.same_layout = true;
    event::StateMoved outcome;
    StateUpkeep::MoveProgress progress;
    while (rig.upkeep.move_some(move, progress, outcome)) {
    }
    return outcome;
  }
  float* residual() { return rig.tensor.codec.sender(0); }
  bool is_own(std::uint64_t element) const { return (kOwnChunks >> element / kChunk & 1) != 0; }

  Rig rig;
  StatePart part;
  std::vector<std::byte> room;
};

class StreamMoveTest : public StateMoveTest {
 protected:
  StreamMoveTest() : StateMoveTest(kStreams, codec::Memory::diana) {}
};

TEST_F(StateMoveTest, ALaneMovesItsOwnChunksWhichAreOwedThen) {
  rig.tensor.tuning = std::make_unique<TensorTuning>(
      TensorTuning::Candidates{}, TensorTuning::Place{.nodes = 2, .chunks = kChunks});
  for (std::uint64_t i = 0; i < kCount; ++i) residual()[i] = static_cast<float>(i) + 1;
  EXPECT_EQ(move(false).code, Errc::ok);
  EXPECT_FALSE(rig.tensor.tuning->any_residual_pending());
  for (std::uint64_t i = 0; i < kCount; ++i) residual()[i] = -1;
  EXPECT_EQ(move(true).code, Errc::ok);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(residual()[i], is_own(i) ? static_cast<float>(i) + 1 : -1.0f) << i;
    const auto chunk = static_cast<std::uint32_t>(i / kChunk);
    ASSERT_EQ(rig.tensor.tuning->residual_pending(chunk) != 0, is_own(i)) << chunk;
  }
}

// An operation with one owner has larger chunks than others where there is little for each node.
TEST(StateUpkeep, MovesTheChunksThatTheTensorsOperationsHave) {
  collective::GroupShape small = shape_of(2);
  small.lanes = 1;
  small.chunk_bytes = 4 * shm::kChunkUnit * sizeof(float);
  small.cut = shm::CutVersion::fine;
  collective::GroupOps ops(small);
  LaneOps lane_ops(ops.table().slots(), 1, 4);
  StateUpkeep upkeep(ops, lane_ops);
  TensorState tensor;
  tensor.id = 8;
  tensor.count = 1000;
  ASSERT_TRUE(codec::parse_recipe_quick(kResidual, tensor.declared.recipe));
  const CodecState::Shape layout{
      .count = tensor.count, .chunk_elements = 4 * shm::kChunkUnit, .nodes = 2};
  ASSERT_TRUE(tensor.codec.allocate(tensor.declared.recipe, layout));
  tensor.tuning = std::make_unique<TensorTuning>(TensorTuning::Candidates{},
                                                 TensorTuning::Place{.nodes = 2, .chunks = 4});
  StatePart part(codec::Memory::ef, 1.0f, layout, tensor.id);
  part.belong_to({plan::kReduce.number, 0, 1, 0, 2});
  std::vector<std::byte> room(part.bytes());
  StateMove move{.part = part, .tensor = &tensor, .room = room, .imports = true};
  move.same_layout = true;
  event::StateMoved outcome;
  StateUpkeep::MoveProgress progress;
  while (upkeep.move_some(move, progress, outcome)) {
  }
  EXPECT_EQ(outcome.code, Errc::ok) << outcome.text.c_str();
  EXPECT_NE(tensor.tuning->residual_pending(0), 0);
  EXPECT_EQ(tensor.tuning->residual_pending(1), 0) << "no operation has such a chunk";
}

// Another node may have lost blocks of them since.
TEST_F(StreamMoveTest, WhatHasBeenImportedBeginsAnewAsWhatHasBeenSent) {
  rig.set_steps(9);
  EXPECT_EQ(move(false).code, Errc::ok);
  rig.upkeep.restart_streams(rig.tensor);
  EXPECT_EQ(move(true).code, Errc::ok);
  EXPECT_EQ(rig.tensor.codec.sender_step(0), 9u);
  rig.upkeep.restart_streams(rig.tensor);
  EXPECT_EQ(rig.restarted(), kOwnChunks);
}

TEST_F(StateMoveTest, IsInPartsAndEndsWhenAnOpBeginsBetweenThem) {
  StateMove move{.part = part, .tensor = &rig.tensor, .room = room};
  event::StateMoved outcome;
  StateUpkeep::MoveProgress progress;
  int parts = 1;
  while (rig.upkeep.move_some(move, progress, outcome)) ++parts;
  EXPECT_EQ(parts, std::popcount(kOwnChunks));
  EXPECT_EQ(outcome.code, Errc::ok);

  for (const bool ends : {false, true}) {
    progress = {};
    ASSERT_TRUE(rig.upkeep.move_some(move, progress, outcome));
    const collective::OpId op = rig.begin(true);
    if (ends) {
      lane_test::end_op(rig.ops, op);
      ++rig.tensor.lanes[0].uses;  // the group's part
    }
    EXPECT_FALSE(rig.upkeep.move_some(move, progress, outcome));
    EXPECT_EQ(outcome.code, Errc::cancelled);
    EXPECT_STREQ(outcome.text.c_str(),
                 "an operation on the tensor began while its state was moved");
    if (!ends) lane_test::end_op(rig.ops, op);
    outcome = {};
  }
}

TEST_F(StateMoveTest, IsRefusedWhileOpsAreInFlightAndOfWhatIsNotFinite) {
  const collective::OpId op = rig.begin(true);
  EXPECT_EQ(move(false).code, Errc::would_block);
  lane_test::end_op(rig.ops, op);
  rig.begin(false, false);
  EXPECT_EQ(move(false).code, Errc::ok) << "one of another tensor is no matter";
  const float bad = NAN;
  std::memcpy(room.data() + room.size() - sizeof(bad), &bad, sizeof(bad));
  const event::StateMoved outcome = move(true);
  EXPECT_EQ(outcome.code, Errc::invalid_argument);
  EXPECT_STREQ(outcome.text.c_str(), "the state holds values that are not finite");
}

// A client chooses its counts, and with them the checksum. Of a state that was kept the counts may
// be those of a group of another size.
TEST_F(StateMoveTest, OfCountsThatTheLaneDoesNotHaveIsRefused) {
  constexpr std::uint32_t kCrc = 77;
  part.belong_to({plan::kReduceScatter.number, kCrc, 1, 0xffffffff, 2});
  room.resize(part.bytes());
  const std::vector<std::uint64_t> counts = {kCount / 2, kCount / 2};
  EXPECT_EQ(move(false).code, Errc::ok) << "a lane without counts has no chunk";
  rig.upkeep.remember_counts(rig.tensor, counts, kCrc + 1);
  EXPECT_EQ(move(false).code, Errc::state_mismatch) << "the last operation had others";
  rig.upkeep.remember_counts(rig.tensor, counts, kCrc);
  EXPECT_EQ(move(false).code, Errc::ok);

  const std::vector<std::uint64_t> of_one_rank = {0, kCount};
  rig.tensor.lanes[0].shares.begins = of_one_rank;
  EXPECT_EQ(move(false).code, Errc::state_mismatch) << "these are one rank's";
  rig.upkeep.remember_counts(rig.tensor, counts, kCrc);
  EXPECT_EQ(rig.tensor.lanes[0].shares.begins.size(), counts.size() + 1);
  EXPECT_EQ(move(false).code, Errc::ok);
}

}  // namespace
}  // namespace tern::daemon::state_upkeep_test
