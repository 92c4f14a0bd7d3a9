#include "daemon/lane/op_ledger.h"

#include <gtest/gtest.h>

#include "group_rig.h"

namespace tern::daemon::op_ledger_test {
namespace {

using collective::OpId;
using group_test::kChunk;
using group_test::Node;
using group_test::OneNode;
using group_test::recipe_of;
using group_test::Spec;

class OpLedgerTest : public OneNode {
 protected:
  // Submitted at 1000, granted at 1400, first encoded at 1900.
  OpId begin(const Spec& spec, const LaneOp& rest) {
    LaneOp lane_op = rest;
    lane_op.submitted_ns = 1000;
    lane_op.started_ns = 1400;
    lane_op.bytes_raw = 4000;
    lane_op.bytes_sent = 500;
    const OpId op = node.begin(spec, lane_op);
    BlockStats& stats = node.codec.blocks().stats(op);
    stats.first_encode_ns = 1900;
    stats.encode_ns = 100;
    stats.decode_ns = 200;
    stats.encoded_bytes = 2000;
    return op;
  }
  LaneOp tuned(TensorState& tensor) {
    auto recipes = std::make_shared<CandidateRecipes>(CandidateRecipes{recipe_of("raw")});
    tensor.tuning = std::make_unique<TensorTuning>(TensorTuning::Candidates{recipes, 1},
                                                   TensorTuning::Place{1, 2, 0, 1});
    LaneOp op = Node::by_recipe_of(tensor);
    op.encoding.tuning = tensor.tuning.get();
    return op;
  }
  // Also of one that has been recorded before.
  event::OpEnded recorded(OpId op, const OpLedger::Ending& ending) {
    node.ledger.record(op, ending);
    const auto events = node.events<event::OpEnded>();
    EXPECT_EQ(events.size(), 1u);
    return events.empty() ? event::OpEnded{} : events[0];
  }
  const LaneCounters& counters() { return *node.resources.counters; }

  static constexpr OpLedger::Ending kWell{Errc::ok, "", 3000};
  static constexpr OpLedger::Ending kBadly{Errc::peer_lost, "node 1 is gone", 3000};
};

TEST_F(OpLedgerTest, AnOpCountsAsCompletedOrAsFailed) {
  const OpId well = begin({.tensor = 2}, {});
  const OpId badly = begin({.tensor = 4}, {});
  node.ledger.count(well, kWell);
  EXPECT_EQ(counters().ops_completed.load(), 1u);
  EXPECT_EQ(counters().ops_failed.load(), 0u);
  EXPECT_EQ(counters().codec_ns.load(), 300u);
  node.ledger.count(badly, kBadly);
  EXPECT_EQ(counters().ops_completed.load(), 1u);
  EXPECT_EQ(counters().ops_failed.load(), 1u);
  EXPECT_EQ(node.resources.kinds.succeeded(plan::kAllReduce.number), 1u)
      << "what has failed is not of its kind";
}

TEST_F(OpLedgerTest, ATensorsFiguresSayWhereItsTimeWent) {
  const Spec spec{};
  const auto tensor = node.declare(spec, "ef(int:bits=8)");
  const OpId op = begin(spec, Node::by_recipe_of(*tensor));
  tuner::ErrorSample& error = node.codec.blocks().stats(op).error;
  error.contributions.energy = 3.0;
  error.results.energy = 1.0;
  error.contributions.residual_energy = 0.5;
  node.ledger.count(op, kWell);
  const TensorCounts& stats = tensor->lanes[0].counts;
  EXPECT_EQ(stats.ops.load(), 1u);
  EXPECT_EQ(stats.kind.load(), static_cast<std::uint16_t>(shm::OpKind::all_reduce));
  EXPECT_EQ(stats.bytes_raw.load(), 4000u);
  EXPECT_EQ(stats.bytes_sent.load(), 500u);
  EXPECT_EQ(stats.wait_ns.load(), 400u);
  EXPECT_EQ(stats.queue_ns.load(), 500u);
  EXPECT_EQ(stats.encode_ns.load(), 100u);
  EXPECT_EQ(stats.decode_ns.load(), 200u);
  EXPECT_EQ(stats.wire_ns.load(), 3000u - 1900u - 300u);
  EXPECT_EQ(stats.input_energy.load(), 4.0);
  EXPECT_EQ(stats.residual_energy.load(), 0.5);
}

TEST_F(OpLedgerTest, AnOpThatNeverBeganHasOnlyWaited) {
  const Spec spec{};
  const auto tensor = node.declare(spec, "raw");
  LaneOp lane_op = Node::by_recipe_of(*tensor);
  lane_op.submitted_ns = 1000;
  const OpId op = node.begin(spec, lane_op);
  node.ledger.count(op, kWell);
  EXPECT_EQ(tensor->lanes[0].counts.wait_ns.load(), 2000u);
  EXPECT_EQ(tensor->lanes[0].counts.queue_ns.load(), 0u);
  EXPECT_EQ(tensor->lanes[0].counts.wire_ns.load(), 0u);
}

TEST_F(OpLedgerTest, AFailedOpIsNotInATensorsFiguresButMayHaveTouchedItsState) {
  const Spec spec{};
  const auto lossy = node.declare(spec, "ef(int:bits=8)");
  node.ledger.count(begin(spec, Node::by_recipe_of(*lossy)), kBadly);
  EXPECT_EQ(lossy->lanes[0].counts.ops.load(), 0u);
  EXPECT_TRUE(lossy->lanes[0].state_touched);

  Spec other{.tensor = 4};
  const auto exact = node.declare(other, "raw");
  node.ledger.count(begin(other, Node::by_recipe_of(*exact)), kWell);
  EXPECT_FALSE(exact->lanes[0].state_touched);

  other = {.tensor = 6, .role = Role::weights};
  const auto reduced = node.declare(other, "xordelta");
  node.ledger.count(begin(other, Node::by_recipe_of(*reduced)), kWell);
  EXPECT_FALSE(reduced->lanes[0].state_touched);

  other = {.tensor = 8, .role = Role::weights, .kind = shm::OpKind::broadcast};
  const auto moved = node.declare(other, "xordelta");
  node.ledger.count(begin(other, Node::by_recipe_of(*moved)), kWell);
  EXPECT_TRUE(moved->lanes[0].state_touched);
}

// What each pair of ranks exchanges is said by no announcement.
TEST_F(OpLedgerTest, OfPairsWithCountsARecordHasWhatThisNodesRanksSend) {
  const OpId op = node.submit({.count = 0, .kind = shm::OpKind::all_to_all, .counts_crc = 7});
  node.change_rank(op, [](OpRank& rank) { rank.extents.input.count = 700; });
  EXPECT_EQ(recorded(op, kBadly).record.count, 700u);
  const OpId equal = node.submit({.tensor = 4, .count = 30, .kind = shm::OpKind::all_to_all});
  EXPECT_EQ(recorded(equal, kBadly).record.count, 30u);
}

TEST_F(OpLedgerTest, ARecordSaysWhatTheOpWasAndHowItEnded) {
  const Spec spec{.tensor = 2,
                  .count = 2 * kChunk,
                  .dtype = DType::bf16,
                  .reduction = Reduction::average,
                  .use = 12};
  const auto tensor = node.declare(spec, "ef(int:bits=8)");
  const OpId op = begin(spec, Node::by_recipe_of(*tensor));
  const event::OpEnded ended = recorded(op, kBadly);
  EXPECT_EQ(ended.group, &node.group);
  EXPECT_EQ(ended.code, Errc::peer_lost);
  EXPECT_STREQ(ended.text.c_str(), "node 1 is gone");
  EXPECT_EQ(ended.record.tensor, 2u);
  EXPECT_EQ(ended.record.sequence, 12u);
  EXPECT_EQ(ended.record.count, 2 * kChunk);
  EXPECT_EQ(ended.record.bytes_sent, 500u);
  EXPECT_EQ(ended.record.submitted_ns, 1000u);
  EXPECT_EQ(ended.record.started_ns, 1400u);
  EXPECT_EQ(ended.record.ended_ns, 3000u);
  EXPECT_EQ(ended.record.kind, static_cast<std::uint16_t>(shm::OpKind::all_reduce));
  EXPECT_EQ(ended.record.dtype, static_cast<std::uint8_t>(DType::bf16));
  EXPECT_EQ(ended.record.reduction, static_cast<std::uint8_t>(Reduction::average));
  EXPECT_TRUE(ended.record.lossy);
  EXPECT_FALSE(ended.record.eager);
  EXPECT_FALSE(ended.record.tuned);
}

TEST_F(OpLedgerTest, TheTunerIsToldWhatItsChoiceCost) {
  const Spec spec{};
  const auto tensor = node.declare(spec, "ef(int:bits=8)");
  const OpId op = begin(spec, tuned(*tensor));
  node.codec.blocks().stats(op).error.results.energy = 7.0;
  const OpRecord record = recorded(op, kWell).record;
  ASSERT_TRUE(record.tuned);
  EXPECT_EQ(record.tuned->encode_ns, 100u);
  EXPECT_EQ(record.tuned->encoded_bytes, 2000u);
  EXPECT_EQ(record.tuned->error.results.energy, 7.0);
}

TEST_F(OpLedgerTest, OfAnOpThatNobodyHereSubmittedNothingIsSaid) {
  const Spec spec{.tensor = 6};
  node.hear(1, spec);
  const OpId op = node.core.ops().find({6, spec.use});
  ASSERT_NE(op, collective::kNoSlot);
  node.resources.trace.start();
  node.ledger.count(op, kBadly);
  node.ledger.record(op, kBadly);
  EXPECT_EQ(counters().ops_failed.load(), 0u);
  EXPECT_TRUE(node.events<event::OpEnded>().empty());
  EXPECT_TRUE(node.resources.trace.read(0, 10).events.empty());
}

TEST_F(OpLedgerTest, AnOpSurprisesByAnotherTimeThanTheOneBeforeOnceThereIsAUsualOne) {
  const Spec spec{};
  const auto tensor = node.declare(spec, "ef(int:bits=8)");
  const OpId op = begin(spec, tuned(*tensor));
  const auto surprises = [&](std::uint64_t took_ns) {
    const OpLedger::Ending ending{Errc::ok, "", 1000 + took_ns};
    node.ledger.count(op, ending);
    return recorded(op, ending).record.tuned.value().surprising;
  };
  for (int i = 0; i < 15; ++i) EXPECT_TRUE(surprises(10'000'000)) << i;
  EXPECT_FALSE(surprises(10'000'000));
  EXPECT_FALSE(surprises(12'000'000));
  EXPECT_TRUE(surprises(20'000'000));
  EXPECT_FALSE(surprises(20'000'000));
  EXPECT_TRUE(surprises(10'000'000));
  EXPECT_TRUE(surprises(100'000));
  EXPECT_FALSE(surprises(900'000));  // short ones vary
}

TEST_F(OpLedgerTest, AnOpIsTracedWithItsWaitsWhileTracingIsOn) {
  const OpId op = begin({.tensor = 4, .use = 9}, {});
  node.ledger.count(op, kBadly);
  node.resources.trace.start();
  node.ledger.count(op, kBadly);
  const auto events = node.resources.trace.read(0, 10).events;
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, TraceKind::op);
  EXPECT_EQ(events[1].kind, TraceKind::wait);
  EXPECT_EQ(events[2].kind, TraceKind::queue);
  const std::uint64_t times[][2] = {{1000, 3000}, {1000, 1400}, {1400, 1900}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i].begin_ns, times[i][0]) << i;
    EXPECT_EQ(events[i].end_ns, times[i][1]) << i;
    EXPECT_EQ(events[i].tensor, 4u) << i;
    EXPECT_EQ(events[i].sequence, 9u) << i;
    EXPECT_EQ(events[i].bytes_raw, 4000u) << i;
    EXPECT_EQ(events[i].bytes, 500u) << i;
    EXPECT_EQ(events[i].codec, static_cast<std::uint8_t>(Errc::peer_lost)) << i;
  }
}

}  // namespace
}  // namespace tern::daemon::op_ledger_test
